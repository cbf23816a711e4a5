// SPDX-License-Identifier: BSD-3-Clause
// A completion queue: the engine pushes, application threads poll. The ring is lock-free. The caller
// serialises application threads among themselves (the per-CQ lock of the verbs layer).
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
#include <vector>

#include "stack/base/spin_lock.hpp"
#include "stack/transport/shared/types.hpp"

namespace faultline::transport {

/// Values of Completion::service_level for a datagram: the header before its data is UDP over IPv6 or IPv4
/// (IBA A17.4.5.1). Adapters report this in the same field, for programs that receive over several header
/// types (UCX).
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
  uint8_t service_level : 4 = 0;  ///< of a datagram: kDatagramOver...
  uint32_t vendor_error = 0;
  TimeNs timestamp_ns = 0;  ///< when it was pushed
};

/// Action of the engine for a completion's event.
enum class Notice : uint8_t {
  none,
  now,   ///< notify the application
  later  ///< moderated: check again at notice_deadline()
};

class CompletionQueue {
 public:
  /// Allocates the ring from `memory`; a resize moves it to the heap.
  explicit CompletionQueue(uint32_t capacity,
                           std::pmr::memory_resource* memory = std::pmr::new_delete_resource())
      : capacity_(capacity), mask_(mask_for(capacity)), ring_(make_ring(mask_ + 1, memory)) {}

  /// Size of a ring for `capacity` completions.
  [[nodiscard]] static size_t bytes_for(uint32_t capacity) {
    return sizeof(Completion) * (size_t{mask_for(capacity)} + 1);
  }
  static constexpr size_t kAlignmentBytes = alignof(Completion);

  [[nodiscard]] uint32_t capacity() const { return capacity_; }

  // --- set before any QP uses the queue ---
  bool has_channel = false;      ///< the application may arm it
  bool is_noted = false;         ///< has_channel, or completions are recorded: CoreContext looks at each
  bool several_cores = false;    ///< QPs of more than one core push to it
  bool ignores_overrun = false;  ///< completions that do not fit are lost silently

  /// Engine. False on overrun: the completion is lost and the queue is marked. The caller raises
  /// IBV_EVENT_CQ_ERR.
  bool push(const Completion& completion, TimeNs now_ns = 0) {
    return several_cores ? push_beside_others(completion, now_ns) : push_alone(completion, now_ns);
  }

  /// Application side, one thread at a time. Calls take(completion) for each of at most `most` completions,
  /// oldest first, and returns their number. They stay in the ring until the last call returns.
  template <typename Take>
  uint32_t poll_each(uint32_t most, Take take) {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    const uint32_t ready = std::min(tail_.load(std::memory_order_acquire) - head, most);
    for (uint32_t i = 0; i < ready; ++i) take(ring_[(head + i) & mask_]);
    if (ready != 0) head_.store(head + ready, std::memory_order_release);
    return ready;
  }
  /// The same, into `out`.
  uint32_t poll(std::span<Completion> out) {
    return poll_each(static_cast<uint32_t>(out.size()),
                     [at = out.data()](const Completion& completion) mutable { *at++ = completion; });
  }

  /// Application side, one thread at a time, without a concurrent poll or push. To exclude pushes, call it on
  /// the owner thread; a queue of several cores locks them out. Keeps the completions that are not polled
  /// yet. Returns 0, EINVAL if they do not fit, or ENOMEM.
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

  /// Removes the completions of QP `qpn`. Application side, one thread at a time, without a concurrent poll;
  /// that QP pushes no more.
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

  /// Application side: requests one event for the next completion (or the next solicited or failed one).
  /// After arming, poll once more: each completion is either seen by that poll or raises the event. (Both
  /// sides read-modify-write `armed_`, so that the later one sees all that the earlier one did before.)
  void arm(bool solicited_only) {
    // Completions that are already in the ring raise no event, even if the engine checks only after this.
    armed_at_.store(tail_.load(std::memory_order_acquire), std::memory_order_relaxed);
    armed_.exchange(solicited_only ? kArmedSolicited : kArmedNext, std::memory_order_acq_rel);
  }
  /// Application side, after arm(), one thread at a time. Returns true if a matching completion, newer than
  /// the last event, is already in the ring; the caller then raises the event. Adapters do so (their doorbell
  /// carries the consumer's index), and programs that arm after their last poll rely on it. Completions
  /// before the last event do not count, since the usual loop arms before it polls them.
  [[nodiscard]] bool take_armed_by_waiting(bool solicited_only) {
    const uint32_t tail = tail_.load(std::memory_order_acquire);
    const uint32_t head = head_.load(std::memory_order_relaxed);
    const uint32_t told = told_.load(std::memory_order_relaxed);
    for (uint32_t at = static_cast<int32_t>(told - head) > 0 ? told : head; at != tail; ++at)
      if (!solicited_only || solicits(ring_[at & mask_])) return disarm();
    return false;
  }
  /// Application side, one thread at a time: the waiting completions count as arriving now, since a scenario
  /// hid them from a poll. Returns true if the queue was armed; the caller then raises the event. Otherwise
  /// the next take_armed_by_waiting() finds them, as an adapter that has just written them.
  [[nodiscard]] bool take_armed_by_late() {
    told_.store(head_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    // A read-modify-write, as in arm(): a thread that arms the queue after it sees the store.
    return armed_.fetch_or(0, std::memory_order_acq_rel) != kNotArmed && disarm();
  }
  /// Application side, one thread at a time: returns the waiting completions, oldest first. Allocates.
  [[nodiscard]] std::vector<Completion> waiting() const {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    std::vector<Completion> copy(tail_.load(std::memory_order_acquire) - head);
    for (uint32_t i = 0; i < copy.size(); ++i) copy[i] = ring_[(head + i) & mask_];
    return copy;
  }
  /// The same thread, without a poll since: replaces what waiting() has returned by the same completions in
  /// another order. They count as arriving now, since a solicited one may have moved before the place of the
  /// last event.
  void reorder_waiting(std::span<const Completion> reordered) {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    for (uint32_t i = 0; i < reordered.size(); ++i) ring_[(head + i) & mask_] = reordered[i];
    told_.store(head, std::memory_order_relaxed);
  }
  /// Pushes of one engine since its last call of notice(). The `end` members are positions in the ring after
  /// the last counted push.
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
  /// Engine: true if notice() is due now. False may be stale: a thread may be arming the queue, and its poll
  /// may miss what was pushed. The engine must then still call notice(), but may defer the call.
  [[nodiscard]] bool seems_armed() const { return armed_.load(std::memory_order_relaxed) != kNotArmed; }
  /// Engine, after its pushes: decides whether to raise an event.
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
  /// Engine: the moderation deadline has passed. Returns true if an event is due.
  [[nodiscard]] bool end_moderation() { return held_.load(std::memory_order_relaxed) != 0 && disarm(); }
  [[nodiscard]] TimeNs notice_deadline() const { return notice_deadline_ns_.load(std::memory_order_relaxed); }
  /// Sets moderation: one event per `count` completions or `period_ns` after the first of them, whichever is
  /// earlier. 0 means no bound; both 0 means an event for each completion. Any thread.
  void moderate(uint32_t count, TimeNs period_ns) {
    moderation_count_.store(count, std::memory_order_relaxed);
    moderation_period_ns_.store(period_ns, std::memory_order_relaxed);
  }

  /// Link of a core's list of queues with moderated events. `listed` is true while some core has the queue in
  /// its list.
  std::atomic<bool> listed{false};
  CompletionQueue* next_listed = nullptr;

  [[nodiscard]] bool empty() const {
    return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_acquire);
  }
  /// Completions that the program has not polled. Any thread; may be stale.
  [[nodiscard]] uint32_t unread() const {
    return tail_.load(std::memory_order_relaxed) - head_.load(std::memory_order_relaxed);
  }
  /// The queue counts as overrun, as a scenario asks for. Any thread.
  void mark_overrun() { overrun_.store(true, std::memory_order_relaxed); }
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
  /// True for a receive with the solicited flag, or for any failure (ibv_req_notify_cq(3)).
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
  uint32_t cached_head_ = 0;  // used by the engine only
  std::atomic<bool> overrun_{false};
  SpinLock push_lock_;  // used if several cores push
  std::atomic<uint8_t> armed_{kNotArmed};
  std::atomic<uint32_t> armed_at_{0};  // end of the ring when it was armed
  std::atomic<uint32_t> told_{0};      // end of the ring at the last event
  std::atomic<uint32_t> held_{0};      // completions since the last moderated event
  std::atomic<uint32_t> moderation_count_{0};
  std::atomic<TimeNs> moderation_period_ns_{0};
  std::atomic<TimeNs> notice_deadline_ns_{0};
  alignas(64) std::atomic<uint32_t> head_{0};
};

}  // namespace faultline::transport
