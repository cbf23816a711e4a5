// SPDX-License-Identifier: BSD-3-Clause
// A completion queue: the engine pushes, app threads poll. Lock-free ring; app threads among themselves are
// serialised by the caller (verbs' per-CQ lock).
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <new>
#include <span>
#include <utility>

#include "stack/base/spin_lock.hpp"
#include "stack/transport/shared/types.hpp"

namespace faultline::transport {

/// A datagram's completion tells which header stands before its data (IBA A17.4.5.1), in the field of the
/// service level as adapters do, for who receives over several (UCX): a UDP header, over IPv6 or IPv4.
inline constexpr uint8_t kDatagramOverIpv6 = 8 | 1;
inline constexpr uint8_t kDatagramOverIpv4 = 8 | 2;

struct Completion {
  uint64_t wr_id = 0;
  uint32_t byte_length = 0;
  uint32_t qpn = 0;
  uint32_t source_qpn = 0;
  uint32_t immediate_or_rkey = 0;  ///< host order
  CompletionStatus status = CompletionStatus::success;
  CompletionOpcode opcode = CompletionOpcode::send;
  uint8_t flags = 0;  ///< CompletionFlag
  uint8_t solicited : 1 = 0;
  uint8_t service_level : 4 = 0;  ///< of a datagram: how it came, kDatagramOver...
  uint32_t vendor_error = 0;
  TimeNs timestamp_ns = 0;  ///< when it was pushed
};

/// What an engine does about a completion's event.
enum class Notice : uint8_t {
  none,
  now,   ///< tell the app
  later  ///< moderated: come back at notice_deadline()
};

class CompletionQueue {
 public:
  /// Its ring is in that memory until a resize.
  explicit CompletionQueue(uint32_t capacity,
                           std::pmr::memory_resource* memory = std::pmr::new_delete_resource())
      : capacity_(capacity), mask_(mask_for(capacity)), ring_(make_ring(mask_ + 1, memory)) {}

  /// What a ring for so many takes.
  [[nodiscard]] static size_t bytes_for(uint32_t capacity) {
    return sizeof(Completion) * (size_t{mask_for(capacity)} + 1);
  }
  static constexpr size_t kAlignmentBytes = alignof(Completion);

  [[nodiscard]] uint32_t capacity() const { return capacity_; }

  // --- set before any QP uses the queue ---
  bool has_channel = false;      ///< somebody may arm it
  bool several_cores = false;    ///< QPs of more than one core push to it
  bool ignores_overrun = false;  ///< what does not fit is lost without a word

  /// Engine. False on overrun: the completion is lost and the queue is marked (IBV_EVENT_CQ_ERR is the
  /// caller's to raise).
  bool push(const Completion& completion, TimeNs now_ns = 0) {
    return several_cores ? push_beside_others(completion, now_ns) : push_alone(completion, now_ns);
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

  /// App side, one thread at a time, no poll meanwhile; no push either: on the owner thread, but for a queue
  /// of several cores, which locks them out. Keeps what is not polled yet. 0, EINVAL where that does not fit,
  /// or ENOMEM.
  [[nodiscard]] int resize(uint32_t capacity) {
    const uint32_t mask = mask_for(capacity);
    Ring fresh;
    try {
      fresh = make_ring(mask + 1, std::pmr::new_delete_resource());
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
    const std::lock_guard lock(push_lock_);
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    const uint32_t head = head_.load(std::memory_order_relaxed);
    if (tail - head > capacity) return EINVAL;
    for (uint32_t at = head; at != tail; ++at) fresh[at & mask] = ring_[at & mask_];
    ring_ = std::move(fresh);
    mask_ = mask;
    capacity_ = capacity;
    return 0;
  }

  /// App side, one thread at a time, no poll meanwhile, and that QP pushes no more: forgets its completions.
  void purge(uint32_t qpn) {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    const uint32_t tail = tail_.load(std::memory_order_acquire);
    uint32_t kept = tail;
    for (uint32_t at = tail; at != head;) {
      --at;
      if (ring_[at & mask_].qpn == qpn) continue;
      --kept;
      if (kept != at) ring_[kept & mask_] = ring_[at & mask_];
    }
    head_.store(kept, std::memory_order_release);
  }

  // --- events ---

  /// App side: the next completion (or the next solicited or failed one) is to be told of, once. Arm, then
  /// look once more: a completion is seen by that look or makes the event. (Both sides read-modify-write
  /// `armed_`, so that the later one sees all that the earlier one did before.)
  void arm(bool solicited_only) {
    // What is there already makes no event any more, though the engine may ask only after this.
    armed_at_.store(tail_.load(std::memory_order_acquire), std::memory_order_relaxed);
    armed_.exchange(solicited_only ? kArmedSolicited : kArmedNext, std::memory_order_acq_rel);
  }
  /// App side, after arm(), one thread at a time: true where a completion that it asked for is there already,
  /// later than the last event, and the event is the caller's to make. Adapters do so (their doorbell carries
  /// the consumer's index), and programs that arm after their last poll count on it. Not for what the last
  /// event was about: the usual loop arms before it polls that.
  [[nodiscard]] bool take_armed_by_waiting(bool solicited_only) {
    const uint32_t tail = tail_.load(std::memory_order_acquire);
    const uint32_t head = head_.load(std::memory_order_relaxed);
    const uint32_t told = told_.load(std::memory_order_relaxed);
    for (uint32_t at = static_cast<int32_t>(told - head) > 0 ? told : head; at != tail; ++at)
      if (!solicited_only || solicits(ring_[at & mask_])) return disarm();
    return false;
  }
  /// What one engine has pushed since it last asked for the notice. Ends are where the ring ended then.
  struct Pushed {
    uint32_t count = 0;
    uint32_t end = 0;
    uint32_t soliciting = 0;
    uint32_t soliciting_end = 0;
  };
  /// Engine, after each push to a queue with a channel.
  void note(const Completion& completion, Pushed& pushed) const {
    ++pushed.count;
    pushed.end = tail_.load(std::memory_order_relaxed);
    if (!solicits(completion)) return;
    ++pushed.soliciting;
    pushed.soliciting_end = pushed.end;
  }
  /// Engine: true where it is time to ask. Where it is false somebody may be arming the queue at this moment,
  /// whose look may not see what was pushed: the engine has to ask all the same, but not at once.
  [[nodiscard]] bool seems_armed() const { return armed_.load(std::memory_order_relaxed) != kNotArmed; }
  /// Engine, after its pushes.
  [[nodiscard]] Notice notice(const Pushed& pushed, TimeNs now_ns) {
    const uint8_t armed = armed_.fetch_or(0, std::memory_order_acq_rel);
    if (armed == kNotArmed) return Notice::none;
    const bool all = armed == kArmedNext;
    const uint32_t armed_at = armed_at_.load(std::memory_order_relaxed);
    const auto since = static_cast<int32_t>((all ? pushed.end : pushed.soliciting_end) - armed_at);
    const uint32_t fresh = all ? pushed.count : pushed.soliciting;
    if (fresh == 0 || since <= 0) return Notice::none;
    const uint32_t told = std::min(fresh, static_cast<uint32_t>(since));
    const uint32_t count = moderation_count_.load(std::memory_order_relaxed);
    const TimeNs period_ns = moderation_period_ns_.load(std::memory_order_relaxed);
    if (count <= 1 && period_ns == 0) return disarm() ? Notice::now : Notice::none;
    const uint32_t held = held_.fetch_add(told, std::memory_order_relaxed) + told;
    if (count != 0 && held >= count) return disarm() ? Notice::now : Notice::none;
    if (period_ns == 0 || held != told) return Notice::none;
    notice_deadline_ns_.store(now_ns + period_ns, std::memory_order_relaxed);
    return Notice::later;
  }
  /// Engine: the deadline is there. True where an event is due.
  [[nodiscard]] bool end_moderation() { return held_.load(std::memory_order_relaxed) != 0 && disarm(); }
  [[nodiscard]] TimeNs notice_deadline() const { return notice_deadline_ns_.load(std::memory_order_relaxed); }
  /// One event for `count` completions or `period_ns` after the first of them, whichever comes first; 0 is
  /// no bound, both 0 an event for each. Any thread.
  void moderate(uint32_t count, TimeNs period_ns) {
    moderation_count_.store(count, std::memory_order_relaxed);
    moderation_period_ns_.store(period_ns, std::memory_order_relaxed);
  }

  /// The list of queues whose events one core holds back; `listed` says that some core has it in its own.
  std::atomic<bool> listed{false};
  CompletionQueue* next_listed = nullptr;

  [[nodiscard]] bool empty() const {
    return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool overrun() const { return overrun_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint8_t kNotArmed = 0, kArmedSolicited = 1, kArmedNext = 2;

  struct Release {
    std::pmr::memory_resource* memory;
    size_t bytes;
    void operator()(Completion* ring) const { memory->deallocate(ring, bytes, kAlignmentBytes); }
  };
  using Ring = std::unique_ptr<Completion[], Release>;
  static Ring make_ring(size_t slots, std::pmr::memory_resource* memory) {
    const size_t bytes = sizeof(Completion) * slots;
    auto* const ring = static_cast<Completion*>(memory->allocate(bytes, kAlignmentBytes));
    std::uninitialized_value_construct_n(ring, slots);
    return Ring(ring, Release{memory, bytes});
  }

  static uint32_t mask_for(uint32_t capacity) { return std::bit_ceil(capacity < 2 ? 2U : capacity) - 1; }
  /// ibv_req_notify_cq(3): a receive whose message asked for it, or anything that failed.
  static bool solicits(const Completion& completion) {
    return completion.solicited != 0 || completion.status != CompletionStatus::success;
  }
  bool disarm() {
    held_.store(0, std::memory_order_relaxed);
    told_.store(tail_.load(std::memory_order_acquire), std::memory_order_relaxed);
    return armed_.exchange(kNotArmed, std::memory_order_acq_rel) != kNotArmed;
  }

  [[gnu::noinline]] bool push_beside_others(const Completion& completion, TimeNs now_ns) {
    const std::lock_guard lock(push_lock_);
    return push_alone(completion, now_ns);
  }
  bool push_alone(const Completion& completion, TimeNs now_ns) {
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - cached_head_ > mask_) {
      cached_head_ = head_.load(std::memory_order_acquire);
      if (tail - cached_head_ > mask_) {
        if (ignores_overrun) return true;
        overrun_.store(true, std::memory_order_relaxed);
        return false;
      }
    }
    Completion& slot = ring_[tail & mask_];
    slot = completion;
    slot.timestamp_ns = now_ns;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

  uint32_t capacity_;
  uint32_t mask_;
  Ring ring_;
  alignas(64) std::atomic<uint32_t> tail_{0};
  uint32_t cached_head_ = 0;  // engine's
  std::atomic<bool> overrun_{false};
  SpinLock push_lock_;  // of several cores
  std::atomic<uint8_t> armed_{kNotArmed};
  std::atomic<uint32_t> armed_at_{0};  // where the ring ended before it was armed
  std::atomic<uint32_t> told_{0};      // where the ring ended at the last event
  std::atomic<uint32_t> held_{0};      // completions since the moderated event before
  std::atomic<uint32_t> moderation_count_{0};
  std::atomic<TimeNs> moderation_period_ns_{0};
  std::atomic<TimeNs> notice_deadline_ns_{0};
  alignas(64) std::atomic<uint32_t> head_{0};
};

}  // namespace faultline::transport
