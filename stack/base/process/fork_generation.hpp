// SPDX-License-Identifier: BSD-3-Clause
// Counts the forks between the first process and this one. An object that was made in another generation
// belongs to the parent: its threads do not exist here, and its locks may stay locked for ever.
#pragma once

#include <cstdint>

namespace faultline {

/// What a room does around each fork, as the arguments of pthread_atfork(3). `in_child` must be
/// async-signal-safe.
struct ForkHandlers {
  void (*prepare)();
  void (*in_parent)();
  void (*in_child)();
};

/// Sets the handlers; they run from the first watch_forks() on. `handlers` must live for ever. One room has
/// any.
void set_fork_handlers(const ForkHandlers& handlers);

/// Calls pthread_atfork(3), once. Handlers that other code installs later run earlier before a fork.
void watch_forks();

/// Returns the generation of this process; the first process has 0. Watches forks from the first call on.
/// Notices a child that was made without the C library's fork() (_Fork, a bare clone), and runs the handlers
/// there. Any thread.
[[nodiscard]] uint32_t fork_generation();

}  // namespace faultline
