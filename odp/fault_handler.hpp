// SPDX-License-Identifier: BSD-3-Clause
// The SIGSEGV and SIGBUS handler that ends a tolerant copy early, and hands every other signal to the handler
// that was there before.
#pragma once

#include <csignal>

namespace faultline::odp {

/// Puts our handler in front. Called again it does nothing, unless the program has installed its own
/// meanwhile: then ours goes in front of that one. Any thread.
void install_fault_handler();

/// A blocked SIGSEGV or SIGBUS that the kernel must deliver kills the process: a thread that copies must not
/// block them.
void unblock_fault_signals();

/// sigaction(2) for the program: once ours is installed, a handler of SIGSEGV or SIGBUS is put behind it, and
/// the program is told of its own predecessor. Safe in a signal handler.
[[nodiscard]] int program_sigaction(int signal_number, const struct sigaction* action, struct sigaction* old);

}  // namespace faultline::odp
