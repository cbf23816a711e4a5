// SPDX-License-Identifier: BSD-3-Clause
// A completion queue: the engine pushes, app threads poll. Lock-free ring; app threads among themselves are
// serialised by the caller (verbs' per-CQ lock).
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>

#include "stack/transport/types.hpp"

namespace faultline::transport {

struct Completion {
  uint64_t wr_id = 0;
  uint32_t byte_length = 0;
  uint32_t qpn = 0;
  uint32_t source_qpn = 0;
  uint32_t immediate_or_rkey = 0;  ///< host order
  CompletionStatus status = CompletionStatus::success;
  CompletionOpcode opcode = CompletionOpcode::send;
  uint8_t flags = 0;  ///< CompletionFlag
  uint8_t solicited = 0;
  uint32_t vendor_error = 0;
};

class CompletionQueue {
 public:
  explicit CompletionQueue(uint32_t capacity)
      : capacity_(capacity),
        mask_(std::bit_ceil(capacity < 2 ? 2U : capacity) - 1),
        ring_(std::make_unique<Completion[]>(mask_ + 1)) {}

  [[nodiscard]] uint32_t capacity() const { return capacity_; }

  /// Engine. False on overrun: the completion is lost and the queue is marked (IBV_EVENT_CQ_ERR is the
  /// caller's to raise).
  bool push(const Completion& completion) {
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - cached_head_ > mask_) {
      cached_head_ = head_.load(std::memory_order_acquire);
      if (tail - cached_head_ > mask_) {
        overrun_.store(true, std::memory_order_relaxed);
        return false;
      }
    }
    ring_[tail & mask_] = completion;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

  /// App side, one thread at a time. Returns how many were taken.
  uint32_t poll(std::span<Completion> out) {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    uint32_t ready = tail_.load(std::memory_order_acquire) - head;
    if (ready > out.size()) ready = static_cast<uint32_t>(out.size());
    for (uint32_t i = 0; i < ready; ++i) out[i] = ring_[(head + i) & mask_];
    if (ready != 0) head_.store(head + ready, std::memory_order_release);
    return ready;
  }

  /// App side: the next completion (or the next solicited or failed one) is to be told of, once. Arm, then
  /// look once more: a completion is seen by that look or makes the event. (Both sides read-modify-write
  /// `armed_`, so that the later one sees all that the earlier one did before.)
  void arm(bool solicited_only) {
    armed_.exchange(solicited_only ? kArmedSolicited : kArmedNext, std::memory_order_acq_rel);
  }
  /// Engine, after a push: true where the app armed the queue for it. Only of a queue with a channel.
  [[nodiscard]] bool take_armed(const Completion& completion) {
    const uint8_t armed = armed_.fetch_or(0, std::memory_order_acq_rel);
    if (armed == kNotArmed) return false;
    if (armed == kArmedSolicited && completion.solicited == 0 &&
        completion.status == CompletionStatus::success)
      return false;
    return armed_.exchange(kNotArmed, std::memory_order_acq_rel) != kNotArmed;
  }
  /// Set before any QP uses the queue: somebody may arm it.
  bool has_channel = false;

  [[nodiscard]] bool empty() const {
    return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool overrun() const { return overrun_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint8_t kNotArmed = 0, kArmedSolicited = 1, kArmedNext = 2;

  const uint32_t capacity_;
  const uint32_t mask_;
  const std::unique_ptr<Completion[]> ring_;
  alignas(64) std::atomic<uint32_t> tail_{0};
  uint32_t cached_head_ = 0;  // engine's
  std::atomic<bool> overrun_{false};
  std::atomic<uint8_t> armed_{kNotArmed};
  alignas(64) std::atomic<uint32_t> head_{0};
};

}  // namespace faultline::transport
