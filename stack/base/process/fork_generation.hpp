// SPDX-License-Identifier: BSD-3-Clause
// Counts the forks between the first process and this one. An object made in an earlier generation belongs to
// the parent: its threads do not exist here, and its locks may stay locked forever.
#pragma once

#include <cstdint>

namespace faultline {

/// The work that a component does around each fork: the arguments of pthread_atfork(3). `in_child` must be
/// async-signal-safe.
struct ForkHandlers {
  void (*prepare)();
  void (*in_parent)();
  void (*in_child)();
};

/// Sets the handlers, which run from the first watch_forks() on. `handlers` must live forever. Only one
/// component has handlers.
void set_fork_handlers(const ForkHandlers& handlers);

/// Calls pthread_atfork(3), once. Prepare handlers that other code installs later run earlier.
void watch_forks();

/// Returns the generation of this process; the first process has 0. The first call starts to watch forks.
/// Detects a child made without the C library's fork() (_Fork, a bare clone), and runs the child handlers
/// there. Any thread.
[[nodiscard]] uint32_t fork_generation();

}  // namespace faultline
