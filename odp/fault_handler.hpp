// SPDX-License-Identifier: BSD-3-Clause
// The SIGSEGV and SIGBUS handler that ends a tolerant copy early, and hands every other signal to the handler
// that was there before.
#pragma once

namespace faultline::odp {

/// Puts our handler in front. Called again it does nothing, unless the program has installed its own
/// meanwhile: then ours goes in front of that one. Any thread.
void install_fault_handler();

/// A blocked SIGSEGV or SIGBUS that the kernel must deliver kills the process: a thread that copies must not
/// block them.
void unblock_fault_signals();

}  // namespace faultline::odp
