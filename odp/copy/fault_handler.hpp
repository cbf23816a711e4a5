// SPDX-License-Identifier: BSD-3-Clause
// The SIGSEGV and SIGBUS handler that ends a tolerant copy early, and hands every other signal to the handler
// that was there before.
#pragma once

#include <csignal>

namespace faultline::odp {

/// Puts our handler in front. A further call does nothing unless another handler was installed without our
/// knowledge; then ours is installed in front of that one. Any thread.
void install_fault_handler();

/// After a fork, in the child: the saved actions are the child's from now on.
void own_signals_in_child();

/// sigaction(2) for the program: once ours is installed, ours calls the program's action for SIGSEGV and
/// SIGBUS, and the program gets its own predecessor back. In a vfork child the call changes the child's table
/// only. Safe in a signal handler.
[[nodiscard]] int program_sigaction(int signal_number, const struct sigaction* action, struct sigaction* old);

}  // namespace faultline::odp
