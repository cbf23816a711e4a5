// SPDX-License-Identifier: BSD-3-Clause
// A bounded ring between exactly one producer thread and one consumer thread.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>

namespace faultline {

// The padding keeps the producer's cache line apart from the consumer's.
template <typename T>
class SpscRing {  // NOLINT(clang-analyzer-optin.performance.Padding)
 public:
  /// Holds at least `capacity` elements (rounded up to a power of two).
  explicit SpscRing(size_t capacity)
      : mask_(std::bit_ceil(capacity < 2 ? size_t{2} : capacity) - 1),
        slots_(std::make_unique<T[]>(mask_ + 1)) {}

  [[nodiscard]] size_t capacity() const { return mask_ + 1; }

  [[nodiscard]] bool try_push(const T& value) {
    const size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - cached_head_ > mask_) {
      cached_head_ = head_.load(std::memory_order_acquire);
      if (tail - cached_head_ > mask_) return false;
    }
    slots_[tail & mask_] = value;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

  [[nodiscard]] bool try_pop(T& value) {
    const size_t head = head_.load(std::memory_order_relaxed);
    if (head == cached_tail_) {
      cached_tail_ = tail_.load(std::memory_order_acquire);
      if (head == cached_tail_) return false;
    }
    value = slots_[head & mask_];
    head_.store(head + 1, std::memory_order_release);
    return true;
  }

  /// Exact on the consumer's thread; on another thread the result may be stale.
  [[nodiscard]] bool empty() const {
    return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_acquire);
  }

 private:
  const size_t mask_;
  const std::unique_ptr<T[]> slots_;
  alignas(64) std::atomic<size_t> tail_{0};
  size_t cached_head_ = 0;  // producer's
  alignas(64) std::atomic<size_t> head_{0};
  size_t cached_tail_ = 0;  // consumer's
};

}  // namespace faultline
