// SPDX-License-Identifier: BSD-3-Clause
// A mutex of process-wide state that a forked child continues with. Other threads do not exist in the child,
// so a mutex that one of them held would stay locked there. A fork therefore waits until no thread holds a
// ForkMutex: the child finds it unlocked, and what it guards whole.
#pragma once

#include <atomic>
#include <mutex>

namespace faultline {

/// Must have static storage; satisfies Lockable. Work under it is short, for a fork waits for it.
///
/// Lock order: the locks of pthread_atfork(3) handlers registered after watch_forks() precede it, those of
/// the fork handlers (fork_generation.hpp) follow it. A thread holds one ForkMutex at a time.
///
/// Two children may find the guarded state half changed: that of a signal handler that forks on top of the
/// holder, and that of _Fork(3) or a bare clone. POSIX allows both only async-signal-safe functions. The
/// mutex is unlocked there too.
class ForkMutex {
 public:
  constexpr ForkMutex() = default;
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

  void lock();
  [[nodiscard]] bool try_lock();
  void unlock() { mutex_.unlock(); }

  // For fork_generation.cpp.

  /// Locks every ForkMutex that was ever locked. Called before a fork.
  static void lock_all();
  /// Undoes lock_all(), in the parent.
  static void unlock_all();
  /// Makes every ForkMutex unlocked, in a child. Async-signal-safe.
  static void reset_all();

 private:
  /// Makes lock_all() know this mutex, once.
  void enroll();

  std::recursive_mutex mutex_;  ///< recursive, since a signal handler may fork on top of the holder
  std::atomic<bool> is_enrolled_{false};
};

}  // namespace faultline
