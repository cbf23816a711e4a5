// SPDX-License-Identifier: BSD-3-Clause
// What the protocols of a core share. Its parts own their state: transmit batch, timers, ready list, pool of
// parked packets, notices of completions, shared receive queues. Owner: the core's thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "odp/regions/memory_access.hpp"
#include "stack/base/probes.hpp"
#include "stack/transport/context/completion_notices.hpp"
#include "stack/transport/context/fault_waiter.hpp"
#include "stack/transport/context/park_pool.hpp"
#include "stack/transport/context/ready_list.hpp"
#include "stack/transport/context/scatter_gather.hpp"
#include "stack/transport/context/shared_receive_queues.hpp"
#include "stack/transport/qp/config.hpp"
#include "stack/transport/qp/events.hpp"
#include "stack/transport/qp/queue_pair.hpp"
#include "stack/transport/qp/shared_receive_queue.hpp"
#include "stack/transport/shared/counters.hpp"
#include "stack/transport/shared/port.hpp"
#include "stack/transport/shared/timer_wheel.hpp"
#include "stack/transport/shared/tx_batch.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::transport {

struct CoreContext;

/// Records a completion of the QP in the queue; see recorder.hpp.
void record_completion(CoreContext& context, const QueuePair& qp, const CompletionQueue& cq,
                       const Completion& completion);

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
  record::RingWriter* const recorder;  ///< nullptr: nothing is recorded
  CoreCounters counters;
  /// Why the packet in work was dropped; kNoDrop before. For the recorder and EventSink::on_frame_dropped.
  static constexpr uint8_t kNoDrop = UINT8_MAX;
  uint8_t last_drop = kNoDrop;
  TxBatch tx;
  TimerWheel timers{kTimerTickShift};
  TimerWheel paces{kPaceTickShift};
  TimeNs now_ns = 0;
  /// Time at which a QP last had WQEs that its window or credits did not let it send.
  std::atomic<TimeNs> last_awaited_answers_ns{0};  // read by any thread
  uint64_t receives_completed = 0;
  ReadyList ready;
  ParkPool parking;
  CompletionNotices notices;
  SharedReceiveQueues shared_receives{config};

  // --- pace ---
  /// Returns false if the QP's rate does not allow another packet yet; the QP becomes ready when it does.
  [[nodiscard]] bool may_send(QueuePair& qp) {
    return qp.rate_control == nullptr || qp.pacing.next_ns() <= now_ns || !wait_for_pace(qp);
  }
  void note_sent(QueuePair& qp, uint32_t bytes) {
    if (qp.rate_control != nullptr) note_paced(qp, bytes);
  }

  void make_ready(QueuePair& qp) { ready.add(qp); }
  void note_awaits_answers() { last_awaited_answers_ns.store(now_ns, std::memory_order_relaxed); }
  void arm(QueuePair& qp, TimeNs deadline_ns) { timers.arm(qp.timer, deadline_ns, now_ns); }

  void count(DropReason reason) {
    ++counters.drops[static_cast<size_t>(reason)];
    last_drop = static_cast<uint8_t>(reason);
  }
  void raise(QueuePair& qp, AsyncEvent event) {
    if (events != nullptr) events->on_qp_event(qp.qpn, qp.user, event);
  }

  /// Notes why the QP is about to fail, for vendor_err and the record. The first cause since RESET counts.
  static void blame(QueuePair& qp, status::FailureCause cause) {
    if (qp.failure.cause == status::FailureCause::none) qp.failure.cause = cause;
  }
  /// As blame(), by the reason for which the memory refuses a peer's access.
  void blame_access(QueuePair& qp, const odp::Target& target, uint64_t va, uint64_t length_bytes);
  /// As blame(), of the page that the pager could not make resident.
  static void blame_page(QueuePair& qp, status::FailureCause cause);
  /// Reports why a QP is about to fail: `status` of its work request, or the NAK that it sent. Derives the
  /// cause from the status if none was noted.
  void report(QueuePair& qp, CompletionStatus status);
  void report_nak(QueuePair& qp);

  // --- faults ---
  /// Requests a page range: served on this thread if it is short, else queued for the pager.
  [[nodiscard]] FaultAnswer request_fault(QueuePair& qp, const odp::Target& target, uint64_t va,
                                          uint64_t length_bytes, const FaultWaiter& waiter);

  /// The QP's next turn executes its parked packets again.
  void retry_parked_later(QueuePair& qp) {
    qp.responder.parked_retry = true;
    make_ready(qp);
  }

  // --- completions ---
  [[gnu::always_inline]] void push(QueuePair& qp, CompletionQueue& cq, const Completion& completion) {
    probes::complete(completion.qpn, completion.wr_id, static_cast<uint8_t>(completion.status));
    if (!cq.push(completion, now_ns)) [[unlikely]]
      return note_overrun(qp, cq);
    if (cq.is_noted) note_completion(qp, cq, completion);
  }
  void note_completion(const QueuePair& qp, CompletionQueue& cq, const Completion& completion) {
    if (recorder != nullptr) [[unlikely]]
      record_completion(*this, qp, cq, completion);
    if (cq.has_channel && events != nullptr) notices.note(cq, completion, now_ns);
  }
  [[nodiscard]] static bool is_signaled(const QueuePair& qp, const SendWqe& wqe) {
    return qp.signal_all || (wqe.flags & kSignaled) != 0;
  }
  /// Completes the send WQE at the ring's head and retires it. An error also completes unsignaled WQEs.
  void complete_send(QueuePair& qp, CompletionStatus status);

  // --- receives ---
  /// Returns the QP's current receive, or the next one, without taking it; nullptr if none is posted.
  [[nodiscard]] static const Receive* peek_receive(QueuePair& qp, SharedReceiveQueue* srq);
  /// Takes the receive that peek_receive() has returned.
  void take_peeked(QueuePair& qp);
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

  [[nodiscard]] bool wait_for_pace(QueuePair& qp);
  void note_paced(QueuePair& qp, uint32_t bytes);
  void retire_shared(SharedReceiveQueue& srq);
  [[nodiscard]] bool take_own_receive(QueuePair& qp);
  /// Handles a lost completion: CQ and QP enter the error state. The QP accepts no further packet. The caller
  /// is in the middle of a message, so Core::Impl::serve does the rest of the error transition later.
  void note_overrun(QueuePair& qp, CompletionQueue& cq);
};

}  // namespace faultline::transport
