// SPDX-License-Identifier: BSD-3-Clause
// The SIGSEGV and SIGBUS handler that ends a tolerant copy early. It forwards every other signal to the
// handler that was installed before.
#pragma once

#include <csignal>

namespace faultline::odp {

/// Installs our handler in front. A further call does nothing unless another handler was installed without
/// our knowledge; then ours is installed in front of that one. Any thread.
void install_fault_handler();

/// Call in the child after a fork: the saved actions describe the child's from now on.
void own_signals_in_child();

/// sigaction(2) for the program. Once our handler is installed, it calls the program's action for SIGSEGV
/// and SIGBUS, and `old` returns the program's own previous action. In a vfork child the call changes the
/// child's table only. Safe in a signal handler.
[[nodiscard]] int program_sigaction(int signal_number, const struct sigaction* action, struct sigaction* old);

}  // namespace faultline::odp
