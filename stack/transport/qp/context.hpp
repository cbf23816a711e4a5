// SPDX-License-Identifier: BSD-3-Clause
// State shared by the parts of a core: memory, transmit batch, timers, counters, ready list, pool of parked
// packets. Owner: the core's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "odp/regions/memory_access.hpp"
#include "stack/transport/qp/config.hpp"
#include "stack/transport/qp/events.hpp"
#include "stack/transport/qp/fault_waiter.hpp"
#include "stack/transport/qp/queue_pair.hpp"
#include "stack/transport/qp/shared_receive_queue.hpp"
#include "stack/transport/qp/tx_prefetch.hpp"
#include "stack/transport/shared/counters.hpp"
#include "stack/transport/shared/port.hpp"
#include "stack/transport/shared/timer_wheel.hpp"
#include "stack/transport/shared/tx_batch.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::transport {

enum class FaultAnswer : uint8_t {
  served,  ///< the pages are resident: repeat the access now
  queued,  ///< a resolution follows
  full     ///< no room in the fault queue (counted): repeat the access on a later turn
};
/// Limit on repetitions of one access in place. Each needs another page, or a page that was taken away again;
/// other QPs have to get their turn.
inline constexpr unsigned kMostRetriesInPlace = 4;

struct CoreContext {
  CoreContext(const CoreConfig& core_config, odp::MemoryAccess& memory_access, Port& core_port,
              EventSink* sink);

  const CoreConfig& config;
  odp::MemoryAccess& memory;
  Port& port;
  EventSink* const events;
  CoreCounters counters;
  TxBatch tx;
  TimerWheel timers{kTimerTickShift};
  TimerWheel paces{kPaceTickShift};
  TimeNs now_ns = 0;
  uint64_t receives_completed = 0;
  TxPrefetch lookahead;

  // --- pace ---
  /// Returns false if the QP's rate does not allow another packet yet; the QP becomes ready when it does.
  [[nodiscard]] bool may_send(QueuePair& qp) {
    return qp.rate_control == nullptr || qp.pacing.next_ns() <= now_ns || !wait_for_pace(qp);
  }
  void note_sent(QueuePair& qp, uint32_t bytes) {
    if (qp.rate_control != nullptr) note_paced(qp, bytes);
  }

  // --- ready list: QPs that may have something to send ---
  void make_ready(QueuePair& qp) {
    if (!qp.ready) enlist(qp);
  }
  [[nodiscard]] QueuePair* pop_ready();
  void remove_ready(QueuePair& qp);
  [[nodiscard]] bool has_ready() const { return ready_head_ != nullptr; }
  [[nodiscard]] uint32_t ready_count() const { return ready_count_; }

  void arm(QueuePair& qp, TimeNs deadline_ns) { timers.arm(qp.timer, deadline_ns, now_ns); }

  void count(DropReason reason) { ++counters.drops[static_cast<size_t>(reason)]; }
  void raise(QueuePair& qp, AsyncEvent event) {
    if (events != nullptr) events->on_qp_event(qp.qpn, qp.user, event);
  }

  /// Reports why a QP is about to fail: `status` of its work request, or the NAK that it sent.
  void report(const QueuePair& qp, CompletionStatus status);
  void report_nak(const QueuePair& qp);

  // --- faults ---
  /// Requests a page range: served on this thread if it is short, else queued for the pager.
  [[nodiscard]] FaultAnswer request_fault(const odp::Target& target, uint64_t va, uint64_t length_bytes,
                                          const FaultWaiter& waiter);

  // --- parked packets ---
  /// Appends a frame to the QP's parked packets; false if a bound is reached.
  [[nodiscard]] bool park(QueuePair& qp, const RxFrame& frame);
  /// Releases all of a QP's parked packets to the port.
  void release_parked(QueuePair& qp);
  /// The QP's next turn executes its parked packets again.
  void retry_parked_later(QueuePair& qp) {
    qp.responder.parked_retry = true;
    make_ready(qp);
  }
  void unpark_head(QueuePair& qp);  ///< the caller owns the head's frame afterwards

  // --- packets after a gap ---
  /// Holds a frame in PSN order; false if a bound is reached or the PSN is held already.
  [[nodiscard]] bool hold(QueuePair& qp, wire::Psn psn, const RxFrame& frame);
  [[nodiscard]] RxFrame take_held_head(QueuePair& qp);
  void release_held(QueuePair& qp);

  // --- shared receive queues; each core of a device has its own numbers ---
  [[nodiscard]] SharedReceiveQueue* create_srq(const SrqInit& init);
  void destroy_srq(SharedReceiveQueue* srq);
  [[nodiscard]] SharedReceiveQueue* find_srq(uint32_t number) const;

  // --- completions ---
  /// Between these two calls, a queue that seems unarmed is checked once at the end instead of after each
  /// completion. Each check is a read-modify-write.
  void defer_notices() { defers_notices_ = true; }
  void end_deferral() {
    defers_notices_ = false;
    if (pushed_count_ != 0) ask_for_notices();
  }
  [[gnu::always_inline]] void push(QueuePair& qp, CompletionQueue& cq, const Completion& completion) {
    if (!cq.push(completion, now_ns)) [[unlikely]]
      return note_overrun(qp, cq);
    if (cq.has_channel && events != nullptr) note_pushed(cq, completion);
  }
  /// Raises the moderated events (ibv_modify_cq) that are due.
  void end_moderations();
  [[nodiscard]] TimeNs next_moderation() const;
  void forget(const CompletionQueue& gone);
  [[nodiscard]] static bool tells(const QueuePair& qp, const SendWqe& wqe) {
    return qp.signal_all || (wqe.flags & kSignaled) != 0;
  }
  /// Completes the send WQE at the ring's head and retires it. An error also completes unsignaled WQEs.
  void complete_send(QueuePair& qp, CompletionStatus status);

  // --- receives ---
  /// Reads the QP's current receive, or the next one, without taking it; false if none is posted.
  [[nodiscard]] bool peek_receive(QueuePair& qp, SharedReceiveQueue* srq, Receive& receive);
  /// Takes a receive for the QP until it completes; also true if the QP already has one.
  [[nodiscard]] bool take_receive(QueuePair& qp, SharedReceiveQueue* srq);
  /// Completes the taken receive; `completion` has everything but wr_id and qpn.
  void complete_receive(QueuePair& qp, Completion& completion);
  void flush_receives(QueuePair& qp);
  /// A shared queue is about to be destroyed: drops the receive that the QP took from it and the message that
  /// would fill it.
  static void forget(QueuePair& qp, const SharedReceiveQueue& gone);
  /// Enters the error state and flushes everything posted, in order (IBA 10.3.1.5).
  void enter_error(QueuePair& qp);
  void flush(QueuePair& qp);

 private:
  static constexpr unsigned kTimerTickShift = 13;  // 8.192 us: below the shortest RNR timer; 16.8 ms in all
  static constexpr unsigned kPaceTickShift = 9;    // 0.512 us: a packet at 8 GB/s; 1 ms in all

  void enlist(QueuePair& qp);
  [[nodiscard]] bool wait_for_pace(QueuePair& qp);
  void note_paced(QueuePair& qp, uint32_t bytes);
  void retire_shared(SharedReceiveQueue& srq);
  [[nodiscard]] bool take_own_receive(QueuePair& qp);
  struct PushedTo {
    CompletionQueue* cq;
    CompletionQueue::Pushed what;
  };
  /// Handles a lost completion: CQ and QP enter the error state. The QP accepts no further packet. The caller
  /// is in the middle of a message, so Core::Impl::serve does the rest of the error transition later.
  void note_overrun(QueuePair& qp, CompletionQueue& cq);
  void note_pushed(CompletionQueue& cq, const Completion& completion);
  void ask_for_notices();
  void give_notice(CompletionQueue& cq, const CompletionQueue::Pushed& pushed);

  std::array<PushedTo, 4> pushed_{};  ///< queues with a channel that have unchecked pushes
  size_t pushed_count_ = 0;
  bool defers_notices_ = false;
  CompletionQueue* moderated_ = nullptr;  ///< short list, mostly empty
  QueuePair* ready_head_ = nullptr;
  QueuePair* ready_tail_ = nullptr;
  uint32_t ready_count_ = 0;
  std::vector<std::unique_ptr<SharedReceiveQueue>> srqs_;  // by slot
  std::vector<ParkedFrame> park_pool_;
  ParkedFrame* park_free_ = nullptr;
  uint32_t parked_ = 0;  ///< total over all QPs
};

/// Position in a scatter/gather list at which a copy stopped.
struct SgeSpan {
  uint32_t index = 0;       ///< element at which the copy stopped
  uint64_t va = 0;          ///< address there
  uint32_t left_bytes = 0;  ///< bytes of that element from there
};

/// General case: lists of any length. The inline functions below handle the usual single element.
[[nodiscard]] odp::Outcome gather_list(odp::MemoryAccess& memory, odp::ProtectionDomain domain,
                                       std::span<const Sge> sges, uint32_t offset, std::span<uint8_t> to,
                                       SgeSpan& stop, uint32_t* crc);
[[nodiscard]] odp::Outcome scatter_list(odp::MemoryAccess& memory, odp::ProtectionDomain domain,
                                        std::span<const Sge> sges, uint32_t offset,
                                        std::span<const uint8_t> from, SgeSpan& stop);

/// True if the list has one element and it contains all the bytes.
[[nodiscard]] inline bool is_plain(std::span<const Sge> sges, uint32_t offset, size_t bytes) {
  return sges.size() == 1 && offset <= sges[0].length_bytes && bytes <= sges[0].length_bytes - offset;
}

/// Copies `to.size()` bytes at message offset `offset` out of the list. On a miss or violation, `stop` is the
/// position. A non-null `crc` is updated over the copied bytes in the same pass
/// (odp::MemoryAccess::read_with_crc).
[[nodiscard]] inline odp::Outcome gather(odp::MemoryAccess& memory, odp::ProtectionDomain domain,
                                         std::span<const Sge> sges, uint32_t offset, std::span<uint8_t> to,
                                         SgeSpan& stop, uint32_t* crc = nullptr) {
  if (!is_plain(sges, offset, to.size())) return gather_list(memory, domain, sges, offset, to, stop, crc);
  const Sge& sge = sges[0];
  const odp::Target target{sge.lkey, domain, odp::kLocalRead};
  const odp::Outcome outcome = crc == nullptr ? memory.read(target, sge.va + offset, to)
                                              : memory.read_with_crc(target, sge.va + offset, to, *crc);
  if (outcome != odp::Outcome::done) stop = {0, sge.va + offset, sge.length_bytes - offset};
  return outcome;
}
/// Copies `from` into the list at message offset `offset`.
[[nodiscard]] inline odp::Outcome scatter(odp::MemoryAccess& memory, odp::ProtectionDomain domain,
                                          std::span<const Sge> sges, uint32_t offset,
                                          std::span<const uint8_t> from, SgeSpan& stop) {
  if (!is_plain(sges, offset, from.size())) return scatter_list(memory, domain, sges, offset, from, stop);
  const Sge& sge = sges[0];
  const odp::Outcome outcome = memory.write({sge.lkey, domain, odp::kLocalWrite}, sge.va + offset, from);
  if (outcome != odp::Outcome::done) stop = {0, sge.va + offset, sge.length_bytes - offset};
  return outcome;
}

}  // namespace faultline::transport
