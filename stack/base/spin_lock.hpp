// SPDX-License-Identifier: BSD-3-Clause
// Serialises application threads on one QP or CQ, and cores on a shared CQ. Contention is rare. A waiter
// yields soon, because the holder may have been preempted on the same CPU.
#pragma once

#include <atomic>
#include <thread>

#include "stack/base/pause.hpp"

namespace faultline {

class SpinLock {
 public:
  void lock() {
    unsigned spins = 0;
    while (locked_.exchange(true, std::memory_order_acquire)) {
      while (locked_.load(std::memory_order_relaxed)) {
        if (++spins % kSpinsPerYield == 0)
          std::this_thread::yield();
        else
          pause_cpu();
      }
    }
  }
  [[nodiscard]] bool try_lock() { return !locked_.exchange(true, std::memory_order_acquire); }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  static constexpr unsigned kSpinsPerYield = 128;
  std::atomic<bool> locked_{false};
};

}  // namespace faultline
