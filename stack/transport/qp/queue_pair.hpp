// SPDX-License-Identifier: BSD-3-Clause
// A queue pair's state. Owner: the core's thread, except the two rings' producer sides and the doorbell,
// which app threads use, and `state`, which any thread may read.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "stack/status/failure.hpp"
#include "stack/status/rows.hpp"
#include "stack/transport/congestion/pacing.hpp"
#include "stack/transport/qp/completion_counter.hpp"
#include "stack/transport/qp/completion_queue.hpp"
#include "stack/transport/qp/config.hpp"
#include "stack/transport/qp/events.hpp"
#include "stack/transport/qp/init.hpp"
#include "stack/transport/qp/recovery.hpp"
#include "stack/transport/qp/work_queue.hpp"
#include "stack/transport/shared/port.hpp"
#include "stack/transport/shared/timer_wheel.hpp"
#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/psn.hpp"

namespace faultline::transport {

/// The requester's record of a send WQE: its PSNs, once assigned.
struct SendProgress {
  wire::Psn first_psn;
  uint32_t packets : 30 = 0;  ///< number of PSNs: its request packets, or the response packets of a READ
  uint32_t answered : 1 = 0;  ///< answered with data or a result, not by a plain acknowledgement
  uint32_t signaled : 1 = 0;  ///< signaled
};

/// One cache line.
struct RequesterState {
  uint32_t current = 0;   ///< ring index of the WQE whose packet is next
  uint32_t packet = 0;    ///< that packet's number in the WQE
  uint32_t started = 0;   ///< ring index after the last WQE with PSNs; current < started while retransmitting
  wire::Psn next_psn;     ///< for the next WQE to start
  wire::Psn unacked_psn;  ///< oldest unacknowledged PSN; for a READ the next expected response
  wire::Psn sent_psn;     ///< one past the highest PSN sent
  uint8_t reads_outstanding = 0;
  uint8_t prefaulted_sges = 0;  ///< destination elements of the READ at `started` that are already requested
  uint8_t retries_left = 0;
  uint8_t rnr_retries_left = 0;
  bool fault_wait = false;        ///< waits for a page fault of local memory
  bool fault_failed = false;      ///< that page fault failed
  bool gap_reported = false;      ///< already went back to the gap at unacked_psn
  bool credit_limited = false;    ///< the peer sends credits: its posted receives (IBA 9.7.7.2)
  uint32_t fault_generation = 0;  ///< of the wait; older resolutions are ignored
  wire::Psn last_ssn;             ///< SSN of the newest started message; counts all messages
  wire::Psn limit_ssn;            ///< SSN of the last message for which the peer has a posted receive
  /// The RNR wait is for a page fault; the peer's "page ready" notification ends it early.
  bool rnr_for_page = false;
  uint16_t window_cut_packets = 0;  ///< by which losses have made the window smaller
  TimeNs ack_deadline_ns = kNever;
  TimeNs rnr_deadline_ns = kNever;
};
static_assert(sizeof(RequesterState) <= 64);

enum class ResponseKind : uint8_t { read, atomic };

/// A queued response: to a READ (0 bytes for a FLUSH or ATOMIC WRITE, A19) or to an atomic.
struct QueuedResponse {
  ResponseKind kind = ResponseKind::read;
  wire::Psn first_psn;
  uint32_t packets = 0;
  uint32_t sent_packets = 0;
  uint32_t length_bytes = 0;
  uint32_t rkey = 0;
  uint64_t va = 0;
  uint32_t msn = 0;
  bool duplicate = false;  ///< response to a duplicate request
  uint64_t original = 0;   ///< original value, of an atomic
  odp::ProtectionDomain domain = 0;
};

/// Result of an executed atomic, kept to answer duplicates without executing it again.
struct AtomicResult {
  wire::Psn psn;
  bool valid = false;
  uint64_t original = 0;
};

/// A received packet that is parked for a page fault or held after a gap.
struct ParkedFrame {
  RxFrame frame;
  wire::Psn psn;  ///< of a packet held after a gap
  ParkedFrame* next = nullptr;
};

/// The kind of message that the responder is receiving.
enum class InboundMessage : uint8_t { none, send, write };

/// An outstanding fault request to the pager. A retransmission of the same packet does not request it again.
/// Otherwise a slow page would accumulate requests in the queue, each served separately.
struct OpenFault {
  bool is_open = false;
  uint32_t generation = 0;
  wire::Psn psn;  ///< PSN of the waiting packet

  /// Resolutions of generations before `floor` are ignored, so they do not count as outstanding.
  [[nodiscard]] bool is_of(wire::Psn waiting, uint32_t floor) const {
    return is_open && psn == waiting && static_cast<int32_t>(generation - floor) >= 0;
  }
  void note_answer(uint32_t answered) {
    if (answered == generation) is_open = false;
  }
};

struct ResponderState {
  // Read for every packet, in two cache lines.
  wire::Psn expected_psn;
  /// PSNs executed since RTR, saturating at 2^23; older PSNs belong to a previous connection.
  uint32_t executed_psns = 0;
  uint32_t msn = 0;
  InboundMessage message = InboundMessage::none;
  /// A NAK for expected_psn was sent: no further NAK until that packet arrives (IBA 9.7.5.1.2).
  bool nak_sent = false;
  bool ack_pending = false;
  bool ack_owed = false;     ///< packets were executed since the last acknowledgement
  bool nak_pending = false;  ///< nak_syndrome for nak_psn is sent after the READ responses
  bool nak_for_fault = false;
  bool dropped_after_park = false;  ///< a packet was dropped because the parked packets left no room
  bool owes_ready_notification =
      false;  ///< an RNR NAK for a page was sent: notify the peer when the page is resident
  bool stall_notification_pending = false;
  bool ready_notification_pending = false;
  bool closing = false;         ///< the QP enters the error state after the pending NAK
  bool peer_selective = false;  ///< the peer announced selective acknowledgements
  bool sack_pending = false;
  bool parked_retry = false;      ///< the head of the parked packets may be retried
  bool fault_of_receive = false;  ///< the missing page belongs to a receive buffer, not to an RDMA target
  bool job_fault_wait = false;
  uint8_t nak_syndrome = 0;
  uint8_t fault_naks = 0;    ///< RNR NAKs in a row for faults at fault_nak_psn
  wire::Psn last_dropped{};  ///< highest PSN dropped with dropped_after_park
  wire::Psn fault_nak_psn;
  AsyncEvent closing_event = AsyncEvent::qp_access_error;
  bool credits_sent = false;
  uint32_t job_count = 0;
  wire::Psn nak_psn;
  wire::Psn credited_ssn;  ///< SSN of the last message for which the peer was sent a credit
  ParkedFrame* parked_head = nullptr;
  ParkedFrame* held_head = nullptr;  ///< packets after a gap, in PSN order, without duplicates
  uint32_t park_generation = 0;
  OpenFault park_fault;
  /// First generation since the last progress; older resolutions concern other packets.
  uint32_t park_floor = 0;
  TimeNs park_deadline_ns = kNever;
  uint64_t write_va = 0;
  uint32_t write_rkey = 0;
  uint32_t write_total_bytes = 0;
  uint32_t write_left_bytes = 0;
  uint32_t received_bytes = 0;  ///< of a SEND

  TimeNs held_deadline_ns = kNever;       ///< then the gap is permanent: the held packets are dropped
  TimeNs stall_notification_ns = kNever;  ///< then the stall notification (page fault) is sent to the peer
  TimeNs job_deadline_ns = kNever;        ///< then an RNR NAK replaces the response
  SharedReceiveQueue* srq = nullptr;      ///< XRC target: the SRQ of the current packet

  ParkedFrame* parked_tail = nullptr;
  ParkedFrame* held_tail = nullptr;
  uint32_t parked = 0;
  uint32_t held = 0;

  // Ring of queued responses, in PSN order.
  std::unique_ptr<QueuedResponse[]> jobs;
  uint32_t job_capacity = 0;
  uint32_t job_head = 0;
  uint32_t job_generation = 0;
  OpenFault job_fault;
  uint32_t job_floor = 0;        ///< as park_floor
  bool job_stuck_again = false;  ///< the fault was of a duplicate READ's response
  wire::Psn job_stuck_psn;       ///< PSN of the response of the newest fault request

  std::unique_ptr<AtomicResult[]> atomics;  ///< ring of the newest job_capacity results
  uint32_t next_atomic = 0;

  void advance(uint32_t psns) {
    expected_psn = expected_psn.plus(psns);
    executed_psns = std::min(executed_psns + psns, wire::Psn::kHalf);
  }
  /// True for a PSN before expected_psn that this connection never executed: it belongs to a previous
  /// connection.
  [[nodiscard]] bool is_stale(wire::Psn psn) const {
    return static_cast<uint32_t>(expected_psn.distance_from(psn)) > executed_psns;
  }
  [[nodiscard]] QueuedResponse& job(uint32_t position) { return jobs[slot_of_job(position)]; }
  /// `position` is at most job_capacity. A modulo would take longer than the rest of the lookup.
  [[nodiscard]] uint32_t slot_of_job(uint32_t position) const {
    const uint32_t slot = job_head + position;
    return slot < job_capacity ? slot : slot - job_capacity;
  }
};

/// A posted receive that a message fills.
struct Receive {
  uint64_t wr_id = 0;
  uint32_t length_bytes = 0;
  odp::ProtectionDomain domain = 0;
  std::span<const Sge> sges;
  CompletionQueue* cq = nullptr;
  SharedReceiveQueue* srq = nullptr;  ///< source queue, if not the QP's own ring
};

/// State of a queue pair. Members that every message uses are first, in whole cache lines. A packet of an
/// idle QP then costs few misses, which the prefetch functions start early.
class alignas(64) QueuePair {
 public:
  QueuePair(uint32_t number, const QpInit& init, std::pmr::memory_resource* memory);

  const uint32_t qpn;
  const QpType type;
  [[nodiscard]] Protocol protocol() const { return protocol_of(type); }
  const wire::Service service;
  const bool signal_all;
  const bool blocks_own_multicast;
  bool loopback = false;
  bool is_over_ipv4 = false;
  bool ready = false;  // on the core's ready list
  std::atomic<QpState> state{QpState::reset};
  bool communication_established = false;  ///< the event was raised
  bool cnp_pending = false;
  bool requests_first = false;  ///< at the next turn, since answers were left at the last
  /// The message in progress has taken a receive: `receive`.
  bool receive_taken = false;
  bool is_counted = false;  ///< `counted` is not null: asked here, in a line that each message uses
  /// Packets sent and received, modulo 2^32; counters() extends them. The low bits of the first are the next
  /// IPv4 identification.
  uint32_t tx_packets = 0;
  uint32_t rx_packets = 0;
  uint32_t mtu_bytes = 1024;
  const odp::ProtectionDomain domain;
  CompletionQueue* const send_cq;
  CompletionQueue* const receive_cq;
  QueuePair* next_ready = nullptr;
  /// Null without rate control: the QP sends as fast as the port accepts.
  std::unique_ptr<RateControl> rate_control;

  // Used by requester and responder.
  alignas(64) QpAttributes attributes;
  wire::FrameTemplate frame;  ///< of a UD QP: for `datagram_path`

  alignas(64) RequesterState requester;
  struct Timer : TimerNode {
    QueuePair* qp = nullptr;
  } timer;
  const std::array<const void*, 2> posting_reads;
  const uint32_t progress_mask;
  SendProgress* progress = nullptr;  // by send ring slot: `progress_storage`
  SendRing send_ring;
  RecoveryState recovery;

  alignas(64) ResponderState responder;
  ReceiveRing receive_ring;
  std::pmr::vector<SendProgress> progress_storage;

  Receive receive;
  SharedReceiveQueue* const srq;  ///< for every message; an XRC target's packets name the SRQ instead
  const uint32_t xrc_domain;
  std::vector<Sge> shared_sges;  ///< copy of the elements of a receive from a shared queue
  Pacing pacing;
  Timer pacing_timer;
  TimeNs next_cnp_ns = 0;
  /// In error since its CQ overran; the rest of the error transition is pending.
  bool lost_completion = false;
  wire::Gid multicast_source;      ///< with blocks_own_multicast: source GID of the last packet to a group
  wire::PathHeader datagram_path;  ///< of a UD QP: the path of the last datagram
  void* const user;

  /// The first cause of a failure since the last RESET, and the access that was refused.
  struct Failure {
    status::FailureCause cause = status::FailureCause::none;
    uint32_t key = 0;
    uint32_t length_bytes = 0;
    uint64_t va = 0;
    uint8_t syndrome = 0;  ///< of the peer's NAK (IBA 9.7.5.2.8)
  } failure;
  /// The newest page range that was queued for the pager. waits_for_page() is true if it is missing still.
  struct AwaitedPage {
    uint64_t va = 0;
    TimeNs since_ns = 0;
    uint32_t key = 0;
    uint32_t length_bytes = 0;
  } awaited;
  [[nodiscard]] bool waits_for_page() const {
    return requester.fault_wait || requester.fault_failed || responder.parked_head != nullptr ||
           responder.job_fault_wait;
  }
  wire::Psn first_psn;  ///< sq_psn of the last transition to RTS
  CountedOperations* counted = nullptr;

  // What other processes read of the QP (stack/status).
  status::QpCounters counters;  ///< tx_packets, rx_packets and sends_completed: as of the last snapshot
  status::RowIndex status_row = status::kNoRow;
  uint32_t completed_before = 0;  ///< send ring index as of the last snapshot
  uint32_t list_index = 0;        ///< in the core's list of QPs

  /// What a recording has of the work requests that wait.
  struct Recorded {
    uint32_t posted = 0;  ///< send ring index after the last one with a record
    status::WaitsFor wait = status::WaitsFor::nothing;
    wire::Psn wait_psn;  ///< of the next packet at that time
  } recorded;

  // Used by application threads.
  alignas(64) std::atomic<bool> doorbell_rung{false};
  QueuePair* next_rung = nullptr;

  // The state of an idle QP is prefetched in three steps, each of which needs data from the step before. With
  // many QPs the steps run one QP apart. Always inline: GCC treats a function that only prefetches as free of
  // effects and removes its calls.

  /// Prefetches the lines that sending a request or receiving a response uses.
  [[gnu::always_inline]] void prefetch_to_send() const {
    for (uint32_t i = 0; i < kSendLines; ++i) prefetch_to_send(i);
  }
  /// Number of these lines; the overload prefetches one of them.
  static constexpr uint32_t kSendLines = 10;
  [[gnu::always_inline]] void prefetch_to_send(uint32_t i) const {
    const void* const line = i + 1 == kSendLines ? static_cast<const void*>(&responder) : line_at(i);
    __builtin_prefetch(line, 1);
  }
  /// Prefetches the lines that a request from the peer and its acknowledgement use.
  [[gnu::always_inline]] void prefetch_to_receive() const {
    constexpr uint32_t kFirstLines = 5;
    for (uint32_t i = 0; i < kFirstLines; ++i) __builtin_prefetch(line_at(i), 1);
    __builtin_prefetch(&responder, 1);
    __builtin_prefetch(reinterpret_cast<const uint8_t*>(&responder) + kLineBytes, 1);
    __builtin_prefetch(&send_ring);
    receive_ring.prefetch_ends();
  }
  /// Prefetches the SendProgress of the sends [index, end).
  [[gnu::always_inline]] void prefetch_progress(uint32_t index, uint32_t end) {
    constexpr uint32_t kPerLine = kLineBytes / sizeof(SendProgress);
    end = std::min(end - index, kPrefetchedSends) + index;
    for (; static_cast<int32_t>(end - index) > 0; index += kPerLine)
      __builtin_prefetch(&progress_at(index), 1);
    __builtin_prefetch(&progress_at(end - 1), 1);
  }
  /// Prefetches the WQEs of the signaled sends. Completion does not read the others.
  [[gnu::always_inline]] void prefetch_completion(uint32_t index, uint32_t end) {
    end = std::min(end - index, kPrefetchedSends) + index;
    for (; index != end; ++index)
      if (progress_at(index).signaled != 0) __builtin_prefetch(send_ring.header_at(index));
  }
  /// Prefetches the first payload bytes of a posted WQE. A hint: an address that is relative to a region, not
  /// to this process, fetches nothing.
  [[gnu::always_inline]] void prefetch_payload(uint32_t index) {
    SendWqe* wqe = send_ring.header_at(index);
    if ((wqe->flags & kInline) == 0 && wqe->sge_count != 0)
      __builtin_prefetch(reinterpret_cast<const void*>(send_ring.sges_of(wqe)->va));
  }

  /// Maps an RC opcode to the opcode of this QP's service.
  [[nodiscard]] wire::Opcode in_service(wire::Opcode rc) const { return wire::in_service(rc, service); }
  static constexpr uint32_t kPrefetchedSends = 16;

  static constexpr size_t kLineBytes = 64;
  [[nodiscard]] const void* line_at(size_t i) const {
    return reinterpret_cast<const uint8_t*>(this) + kLineBytes * i;
  }

  [[nodiscard]] bool awaits_answers() const { return requester.unacked_psn != requester.sent_psn; }
  [[nodiscard]] bool takes_shared_receives() const { return srq != nullptr || type == QpType::xrc_recv; }
  [[nodiscard]] QpState state_now() const { return state.load(std::memory_order_relaxed); }
  [[nodiscard]] SendProgress& progress_at(uint32_t index) { return progress[index & progress_mask]; }
  /// PSN of the requester's next packet.
  [[nodiscard]] wire::Psn send_psn() {
    return requester.current == requester.started
               ? requester.next_psn
               : progress_at(requester.current).first_psn.plus(requester.packet);
  }
};

}  // namespace faultline::transport
