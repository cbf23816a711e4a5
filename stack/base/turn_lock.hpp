// SPDX-License-Identifier: BSD-3-Clause
// The lock that grants access to an engine. The holder is the engine's owner thread for one turn. Drivers
// only try the lock. Threads that block on it (a call, a port shutdown) take precedence over the next turn.
#pragma once

#include <atomic>

#include <sched.h>

#include "stack/base/pause.hpp"

namespace faultline {

class TurnLock {
 public:
  [[nodiscard]] bool try_lock() {
    if (waiting_.load(std::memory_order_relaxed) != 0 || holder_.load(std::memory_order_relaxed) != nullptr)
      return false;
    return take();
  }

  /// As try_lock(), but waits for the end of a turn that runs on another CPU.
  [[nodiscard]] bool try_lock_soon() {
    for (unsigned spins = 0; spins < kFewSpins; ++spins) {
      if (try_lock()) return true;
      pause_cpu();
    }
    return false;
  }

  void lock() {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    // A turn takes microseconds: spin that long, then yield the CPU to the holder.
    for (unsigned spins = 0; !take(); ++spins) {
      if (spins < kSpins)
        pause_cpu();
      else
        sched_yield();
    }
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }

  void unlock() { holder_.store(nullptr, std::memory_order_release); }

  /// Returns whether the calling thread holds the lock. A signal handler that interrupted the holder must not
  /// wait for it.
  [[nodiscard]] bool is_held_by_caller() const {
    return holder_.load(std::memory_order_relaxed) == __builtin_thread_pointer();
  }

 private:
  /// Some 10 us. A thread that yields where a program spins gets the CPU back after milliseconds.
  static constexpr unsigned kSpins = 512;

  static constexpr unsigned kFewSpins = 128;

  bool take() {
    const void* nobody = nullptr;
    return holder_.compare_exchange_strong(nobody, __builtin_thread_pointer(), std::memory_order_acquire,
                                           std::memory_order_relaxed);
  }

  std::atomic<const void*> holder_{nullptr};  ///< the thread pointer of the holder
  std::atomic<unsigned> waiting_{0};
};

}  // namespace faultline
