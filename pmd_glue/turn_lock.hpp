// SPDX-License-Identifier: BSD-3-Clause
// Who may touch an engine now. Whoever holds it is the engine's owner thread for one turn; drivers try and go
// away, and those who wait (a call, a port that goes down) come before the next turn.
#pragma once

#include <atomic>

#include <sched.h>

namespace faultline::glue {

class TurnLock {
 public:
  [[nodiscard]] bool try_lock() {
    if (waiting_.load(std::memory_order_relaxed) != 0 || held_.load(std::memory_order_relaxed)) return false;
    return !held_.exchange(true, std::memory_order_acquire);
  }

  void lock() {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    // A turn takes microseconds: spin that long, then leave the CPU to the holder.
    for (unsigned spins = 0; held_.exchange(true, std::memory_order_acquire); ++spins) {
      if (spins < 64)
        __builtin_ia32_pause();
      else
        sched_yield();
    }
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }

  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
  std::atomic<unsigned> waiting_{0};
};

}  // namespace faultline::glue
