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

#include "stack/transport/congestion/pacing.hpp"
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

/// What the requester knows of a send WQE beyond the WQE: its PSNs, once it has them.
struct SendProgress {
  wire::Psn first_psn;
  uint32_t packets : 30 = 0;  ///< PSNs that it takes: its packets, or its response's for a READ
  uint32_t answered : 1 = 0;  ///< with data or a result of its own, not by a plain acknowledgement
  uint32_t told_of : 1 = 0;   ///< its success makes a completion
};

/// One cache line.
struct RequesterState {
  uint32_t current = 0;   ///< ring index of the WQE whose packet is next
  uint32_t packet = 0;    ///< that packet's number in the WQE
  uint32_t started = 0;   ///< ring index behind the last WQE that has PSNs; current < started while resending
  wire::Psn next_psn;     ///< for the next WQE to start
  wire::Psn unacked_psn;  ///< oldest PSN not acknowledged; for a READ the next response that is due
  wire::Psn sent_psn;     ///< one past the highest PSN ever sent
  uint8_t reads_outstanding = 0;
  uint8_t prefaulted_sges = 0;  ///< of the READ at `started`: destinations already asked for
  uint8_t retries_left = 0;
  uint8_t rnr_retries_left = 0;
  bool fault_wait = false;        ///< held for a page of its own memory
  bool fault_failed = false;      ///< the page that it waited for cannot be had
  bool gap_reported = false;      ///< went back for the gap at unacked_psn already
  bool credit_limited = false;    ///< the peer says how many receives it has (IBA 9.7.7.2)
  uint32_t fault_generation = 0;  ///< of the wait; answers to older ones are ignored
  wire::Psn last_ssn;             ///< of the newest message that was started: counts them all
  wire::Psn limit_ssn;            ///< the last message for which the peer is known to have a receive
  bool rnr_for_page = false;      ///< ended early by the peer's word that the page is there
  TimeNs ack_deadline_ns = kNever;
  TimeNs rnr_deadline_ns = kNever;
};
static_assert(sizeof(RequesterState) <= 64);

enum class AnswerKind : uint8_t { read, atomic };

/// A request being answered: a READ (of no bytes for a FLUSH or ATOMIC WRITE, A19) or an atomic.
struct Answer {
  AnswerKind kind = AnswerKind::read;
  wire::Psn first_psn;
  uint32_t packets = 0;
  uint32_t sent_packets = 0;
  uint32_t length_bytes = 0;
  uint32_t rkey = 0;
  uint64_t va = 0;
  uint32_t msn = 0;
  bool duplicate = false;  ///< asked for again
  uint64_t original = 0;   ///< of an atomic
  odp::ProtectionDomain domain = 0;
};

/// An atomic that was executed, kept so that it need not be again.
struct AtomicResult {
  wire::Psn psn;
  bool valid = false;
  uint64_t original = 0;
};

/// A received packet held while its page comes, or while one before it is missing.
struct ParkedFrame {
  RxFrame frame;
  wire::Psn psn;  ///< of a packet held behind a gap
  ParkedFrame* next = nullptr;
};

/// The message that the responder is in the middle of.
enum class InboundMessage : uint8_t { none, send, write };

/// A question to the pager that has no answer yet: the same packet, coming again, does not ask it again.
/// Behind a page that takes long the questions would pile up, each to be served in its turn.
struct OpenFault {
  bool is_open = false;
  uint32_t generation = 0;
  wire::Psn psn;  ///< of what waits

  /// Answers to generations before `floor` are ignored: those are no answers to wait for.
  [[nodiscard]] bool is_of(wire::Psn waiting, uint32_t floor) const {
    return is_open && psn == waiting && static_cast<int32_t>(generation - floor) >= 0;
  }
  void note_answer(uint32_t answered) {
    if (answered == generation) is_open = false;
  }
};

struct ResponderState {
  // Every packet looks at these, in two cache lines.
  wire::Psn expected_psn;
  uint32_t lived_psns = 0;  ///< that this connection has executed, up to half of all there are
  uint32_t msn = 0;
  InboundMessage message = InboundMessage::none;
  bool nak_sent =
      false;  ///< a NAK for expected_psn is out: be silent until that packet comes (IBA 9.7.5.1.2)
  bool ack_pending = false;
  bool ack_owed = false;     ///< packets were executed since the last acknowledgement
  bool nak_pending = false;  ///< nak_syndrome for nak_psn goes out behind the READ answers
  bool nak_for_fault = false;
  bool dropped_behind = false;  ///< a packet behind those that wait for a page found no room
  bool stall_told = false;      ///< an RNR NAK for a page is out: the peer is told when the page is there
  bool stall_word_pending = false;
  bool ready_word_pending = false;
  bool closing = false;         ///< after the pending NAK the QP goes to error
  bool peer_selective = false;  ///< the peer said that it understands selective acknowledgements
  bool sack_pending = false;
  bool parked_retry = false;      ///< the head may be tried again
  bool fault_of_receive = false;  ///< the page that is waited for is of a receive, not of a peer's key
  bool job_fault_wait = false;
  uint8_t nak_syndrome = 0;
  uint8_t fault_naks = 0;    ///< sent for faults at fault_nak_psn, one after the other
  wire::Psn last_dropped{};  ///< the furthest packet that dropped_behind is about
  wire::Psn fault_nak_psn;
  AsyncEvent closing_event = AsyncEvent::qp_access_error;
  bool credits_told = false;
  uint32_t job_count = 0;
  wire::Psn nak_psn;
  wire::Psn told_ssn;  ///< the last message for which the peer was told of a receive
  ParkedFrame* parked_head = nullptr;
  ParkedFrame* held_head = nullptr;  ///< packets behind a gap, in PSN order, each once
  uint32_t park_generation = 0;
  OpenFault park_fault;
  uint32_t park_floor = 0;  ///< first generation since the last progress: older answers are of other packets
  TimeNs park_deadline_ns = kNever;
  uint64_t write_va = 0;
  uint32_t write_rkey = 0;
  uint32_t write_total_bytes = 0;
  uint32_t write_left_bytes = 0;
  uint32_t received_bytes = 0;  ///< of a SEND

  TimeNs held_deadline_ns = kNever;   ///< then the gap is for ever: what is behind it is given up
  TimeNs stall_word_ns = kNever;      ///< then the peer is told that its packet waits for a page
  TimeNs job_deadline_ns = kNever;    ///< then RNR NAK instead of the answer
  SharedReceiveQueue* srq = nullptr;  ///< an XRC target's: of the packet at hand

  ParkedFrame* parked_tail = nullptr;
  ParkedFrame* held_tail = nullptr;
  uint32_t parked = 0;
  uint32_t held = 0;

  // Ring of requests to answer, in PSN order.
  std::unique_ptr<Answer[]> jobs;
  uint32_t job_capacity = 0;
  uint32_t job_head = 0;
  uint32_t job_generation = 0;
  OpenFault job_fault;
  uint32_t job_floor = 0;        ///< as park_floor
  bool job_stuck_again = false;  ///< that was of a READ that had been answered before
  wire::Psn job_stuck_psn;       ///< of the response that the newest request was for

  std::unique_ptr<AtomicResult[]> atomics;  ///< the newest job_capacity of them, a ring
  uint32_t next_atomic = 0;

  void advance(uint32_t psns) {
    expected_psn = expected_psn.plus(psns);
    lived_psns = std::min(lived_psns + psns, wire::Psn::kHalf);
  }
  /// A PSN behind the expected one that no packet of this connection has had: its sender lives an older one's
  /// life.
  [[nodiscard]] bool is_stale(wire::Psn psn) const {
    return static_cast<uint32_t>(expected_psn.distance_from(psn)) > lived_psns;
  }
  [[nodiscard]] Answer& job(uint32_t position) { return jobs[slot_of_job(position)]; }
  /// `position` is at most job_capacity; a division would take longer than the rest of it.
  [[nodiscard]] uint32_t slot_of_job(uint32_t position) const {
    const uint32_t slot = job_head + position;
    return slot < job_capacity ? slot : slot - job_capacity;
  }
};

/// A posted receive that a message goes to.
struct Receive {
  uint64_t wr_id = 0;
  uint32_t length_bytes = 0;
  odp::ProtectionDomain domain = 0;
  std::span<const Sge> sges;
  CompletionQueue* cq = nullptr;
  SharedReceiveQueue* srq = nullptr;  ///< where it came from, if not from the QP's own ring
};

/// What every message touches comes first, in whole cache lines: a packet of a QP that has not been used for
/// a while costs few misses, which `prefetch` has under way in good time.
class alignas(64) QueuePair {
 public:
  QueuePair(uint32_t number, const QpInit& init, std::pmr::memory_resource* memory);

  const uint32_t qpn;
  const QpType type;
  const wire::Service service;
  const bool signal_all;
  const bool blocks_own_multicast;
  bool loopback = false;
  bool ready = false;  // on the core's ready list
  std::atomic<QpState> state{QpState::reset};
  bool communication_established = false;  ///< the event was raised
  bool cnp_pending = false;
  /// A receive is the message's under way: `receive`.
  bool receive_taken = false;
  uint16_t ipv4_identification = 0;
  uint32_t mtu_bytes = 1024;
  const odp::ProtectionDomain domain;
  const uint32_t progress_mask;
  CompletionQueue* const send_cq;
  CompletionQueue* const receive_cq;
  QueuePair* next_ready = nullptr;
  /// No rate control: as fast as the port takes.
  std::unique_ptr<RateControl> rate_control;

  // Both halves of a QP, and what answers.
  alignas(64) QpAttributes attributes;
  wire::FrameTemplate frame;

  alignas(64) RequesterState requester;
  struct Timer : TimerNode {
    QueuePair* qp = nullptr;
  } timer;
  const std::array<const void*, 2> posting_reads;
  SendProgress* progress = nullptr;  // by send ring slot: `progress_storage`
  SendRing send_ring;
  RecoveryState recovery;

  alignas(64) ResponderState responder;
  ReceiveRing receive_ring;
  std::pmr::vector<SendProgress> progress_storage;

  Receive receive;
  SharedReceiveQueue* const srq;  ///< of every message; an XRC target's packets name theirs
  const uint32_t xrc_domain;
  std::vector<Sge> shared_sges;  ///< room for what is taken from a shared queue
  Pacing pacing;
  Timer pacing_timer;
  TimeNs next_cnp_ns = 0;
  bool lost_completion = false;  ///< in error since its queue overran; what that means is still to be done
  wire::Gid multicast_source;    ///< with blocks_own_multicast: of the last packet to a group
  void* const user;

  // App threads' side.
  alignas(64) std::atomic<bool> doorbell_rung{false};
  QueuePair* next_rung = nullptr;

  // What a QP that was not used for a while needs comes in three steps, each found by way of the one before:
  // of many QPs the steps run a QP apart. Always inline: GCC takes a function that only prefetches for one
  // without effect, and leaves its calls out.

  /// Has the lines on their way that a request to be sent or an answer touches.
  [[gnu::always_inline]] void prefetch_to_send() const {
    for (uint32_t i = 0; i < kSendLines; ++i) prefetch_to_send(i);
  }
  /// ... one of them.
  static constexpr uint32_t kSendLines = 10;
  [[gnu::always_inline]] void prefetch_to_send(uint32_t i) const {
    const void* const line = i + 1 == kSendLines ? static_cast<const void*>(&responder) : line_at(i);
    __builtin_prefetch(line, 1);
  }
  /// ... that a request from the peer and its acknowledgement touch.
  [[gnu::always_inline]] void prefetch_to_receive() const {
    constexpr uint32_t kFirstLines = 5;
    for (uint32_t i = 0; i < kFirstLines; ++i) __builtin_prefetch(line_at(i), 1);
    __builtin_prefetch(&responder, 1);
    __builtin_prefetch(reinterpret_cast<const uint8_t*>(&responder) + kLineBytes, 1);
    __builtin_prefetch(&send_ring);
    receive_ring.prefetch_ends();
  }
  /// ... what is known of the sends of [index, end).
  [[gnu::always_inline]] void prefetch_progress(uint32_t index, uint32_t end) {
    constexpr uint32_t kPerLine = kLineBytes / sizeof(SendProgress);
    end = std::min(end - index, kPrefetchedSends) + index;
    for (; static_cast<int32_t>(end - index) > 0; index += kPerLine)
      __builtin_prefetch(&progress_at(index), 1);
    __builtin_prefetch(&progress_at(end - 1), 1);
  }
  /// ... the WQEs of those whose end is told of. That of others is not looked at.
  [[gnu::always_inline]] void prefetch_told(uint32_t index, uint32_t end) {
    end = std::min(end - index, kPrefetchedSends) + index;
    for (; index != end; ++index)
      if (progress_at(index).told_of != 0) __builtin_prefetch(send_ring.header_at(index));
  }
  /// ... the first bytes that a posted WQE points to. A hint: an address that is a region's own, and none of
  /// this process, fetches nothing.
  [[gnu::always_inline]] void prefetch_payload(uint32_t index) {
    SendWqe* wqe = send_ring.header_at(index);
    if ((wqe->flags & kInline) == 0 && wqe->sge_count != 0)
      __builtin_prefetch(reinterpret_cast<const void*>(send_ring.sges_of(wqe)->va));
  }

  /// The opcode of this QP's service for one of RC.
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
  /// PSN of the packet that the requester would send next.
  [[nodiscard]] wire::Psn send_psn() {
    return requester.current == requester.started
               ? requester.next_psn
               : progress_at(requester.current).first_psn.plus(requester.packet);
  }
};

}  // namespace faultline::transport
