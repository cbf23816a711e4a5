// SPDX-License-Identifier: BSD-3-Clause
// Queues of requests to the pager: a pair of rings per engine session, and one bounded queue for all other
// threads. All memory is allocated at construction.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "odp/regions/memory_access.hpp"
#include "stack/base/pi_mutex.hpp"
#include "stack/base/spsc_ring.hpp"

namespace faultline::odp {

struct QueuedFault {
  FaultRequest request;
  uint64_t queued_at_ns = 0;
};

/// One session's rings, between its engine and the pager.
struct FaultRings {
  static constexpr size_t kMaxOutstanding = 1024;

  SpscRing<QueuedFault> requests{kMaxOutstanding};
  /// Has room for every outstanding request, so the pager never finds it full.
  SpscRing<Resolution> resolutions{kMaxOutstanding};

  enum class State : uint32_t { unused, open, closing };
  /// The engine opens the port and requests its closing; the pager releases it by setting `unused`.
  std::atomic<State> state{State::unused};
};

/// A thread's wait for its prefetch. Lives on that thread's stack.
struct PrefetchWait {
  enum class State : uint32_t { waiting, done, failed };
  std::atomic<State> state{State::waiting};
};

struct BackgroundRequest {
  FaultRequest request;
  PrefetchWait* wait = nullptr;
};

class BackgroundQueue {
 public:
  static constexpr size_t kCapacity = 1024;

  [[nodiscard]] bool try_push(const BackgroundRequest& request) {
    const std::lock_guard lock(mutex_);
    if (tail_ - head_ == kCapacity) return false;
    items_[tail_++ % kCapacity] = request;
    size_.fetch_add(1, std::memory_order_release);
    return true;
  }
  [[nodiscard]] bool try_pop(BackgroundRequest& request) {
    if (empty()) return false;
    const std::lock_guard lock(mutex_);
    request = items_[head_++ % kCapacity];
    size_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  [[nodiscard]] bool empty() const { return size_.load(std::memory_order_acquire) == 0; }

 private:
  PiMutex mutex_;
  std::array<BackgroundRequest, kCapacity> items_;
  size_t tail_ = 0;
  size_t head_ = 0;
  std::atomic<size_t> size_{0};
};

}  // namespace faultline::odp
