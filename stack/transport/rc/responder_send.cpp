// SPDX-License-Identifier: BSD-3-Clause
// The responder's sending half: READ responses in PSN order, then the NAK or the coalesced ACK.
#include <algorithm>

#include "stack/transport/context/emit.hpp"
#include "stack/transport/rc/responder.hpp"
#include "stack/wire/packet/credits.hpp"

namespace faultline::transport {

namespace {

wire::Opcode read_response_opcode(bool first, bool last) {
  if (first) return last ? wire::Opcode::rc_read_response_only : wire::Opcode::rc_read_response_first;
  return last ? wire::Opcode::rc_read_response_last : wire::Opcode::rc_read_response_middle;
}

}  // namespace

/// Returns the syndrome of a positive response with the number of posted receives, including the one of the
/// message in progress. A shared queue's receives belong to no particular QP, so no credits are sent (IBA
/// 9.7.7.2).
uint8_t Responder::ack_syndrome(const QueuePair& qp) const {
  if (!context_.config.credits || qp.type != QpType::rc || qp.takes_shared_receives())
    return wire::kAethAck | wire::kAethCreditsInvalid;
  return wire::kAethAck | wire::credit_code_of(qp.receive_ring.tail() - qp.receive_ring.head());
}

/// Sends an unsolicited acknowledgement when the peer has no credits left and a receive is posted.
void Responder::offer_credits(QueuePair& qp) {
  ResponderState& state = qp.responder;
  if (!state.credits_sent || state.credited_ssn > wire::Psn(state.msn)) return;
  if (qp.receive_ring.tail() != qp.receive_ring.head()) state.ack_pending = true;
}

bool Responder::has_work(const QueuePair& qp) const {
  const ResponderState& state = qp.responder;
  if (state.parked_retry) return true;
  if (state.job_count != 0) return !state.job_fault_wait;
  return state.nak_pending || state.ack_pending || state.sack_pending || state.stall_notification_pending ||
         state.ready_notification_pending;
}

/// Sends stall notifications. While a response waits for its page, the rest of the sending half waits too,
/// except for these.
bool Responder::send_stall_notifications(QueuePair& qp, uint32_t& budget_packets) {
  ResponderState& state = qp.responder;
  const bool answer_waits = state.job_count != 0;
  // Everything before the waiting packet has been executed, and answered if it is a READ.
  const wire::Psn waits =
      answer_waits ? state.job(0).first_psn.plus(state.job(0).sent_packets) : state.expected_psn;
  if (state.ready_notification_pending) {
    if (budget_packets == 0 ||
        !send_acknowledge(qp, ack_syndrome(qp), state.fault_nak_psn.minus(1), StallNotification::page_ready))
      return false;
    --budget_packets;
    state.ready_notification_pending = state.owes_ready_notification = false;
  }
  if (state.stall_notification_pending) {
    if (budget_packets == 0 ||
        !send_acknowledge(qp, ack_syndrome(qp), waits.minus(1), StallNotification::page_fault))
      return false;
    --budget_packets;
    state.stall_notification_pending = false;
  }
  return true;
}

/// Finds the entry for the response to a duplicate request. A requester that goes back requests all later
/// READs again and gets each response once. A request that the network duplicated or delayed leaves the
/// queued responses alone, so that none has to be requested again. If the ring is full, this response is
/// dropped: the queued ones are all that the requester may have outstanding, so this one was delivered.
QueuedResponse* Responder::place_again(QueuePair& qp, wire::Psn psn, uint32_t packets) {
  ResponderState& state = qp.responder;
  const auto end_of = [](const QueuedResponse& answer) { return answer.first_psn.plus(answer.packets); };
  uint32_t position = 0;
  while (position != state.job_count && end_of(state.job(position)) <= psn) ++position;
  if (position != state.job_count && state.job(position).first_psn <= psn) {
    // This response itself is queued. If the requested part has been sent, it starts again from there.
    QueuedResponse& due = state.job(position);
    if (due.first_psn.plus(due.sent_packets) <= psn) return nullptr;
    if (position == 0) stop_job_wait(qp);
    return &due;
  }
  const bool overlaps = position != state.job_count && psn.plus(packets) > state.job(position).first_psn;
  if (overlaps || state.job_count == state.job_capacity) {
    context_.count(DropReason::payload_rule);
    return nullptr;
  }
  for (uint32_t at = state.job_count++; at != position; --at) state.job(at) = state.job(at - 1);
  if (position == 0) stop_job_wait(qp);
  return &state.job(position);
}

void Responder::send(QueuePair& qp, uint32_t& budget_packets) {
  ResponderState& state = qp.responder;
  if ((state.stall_notification_pending || state.ready_notification_pending) && !state.nak_pending &&
      !send_stall_notifications(qp, budget_packets))
    return;
  while (state.job_count != 0) {
    if (state.job_fault_wait || budget_packets == 0 || !context_.may_send(qp) || !send_answer(qp)) return;
    --budget_packets;
  }
  if (budget_packets == 0) return;
  if (state.nak_pending) {
    if (!send_acknowledge(qp, state.nak_syndrome, state.nak_psn,
                          state.nak_for_fault ? StallNotification::page_fault : StallNotification::none))
      return;
    --budget_packets;
    // A NAK acknowledges everything before its PSN.
    state.nak_pending = state.ack_pending = state.ack_owed = false;
    const bool rnr = (state.nak_syndrome & wire::kAethKindMask) == wire::kAethRnrNak;
    ++(rnr ? context_.counters.rnr_naks_sent : context_.counters.naks_sent);
    if (state.closing) {
      context_.report_nak(qp);
      context_.enter_error(qp);
      context_.raise(qp, state.closing_event);
    }
  }
  if (state.sack_pending) {
    state.sack_pending = false;
    if (state.held_head == nullptr) {
      state.ack_pending = true;  // the gap has been closed since
    } else {
      // Sent after a NAK too: after an RNR NAK the requester then does not retransmit the held packets.
      if (budget_packets == 0 || !send_selective_acknowledge(qp)) {
        state.sack_pending = true;
        return;
      }
      --budget_packets;
      state.ack_pending = state.ack_owed = false;
    }
  }
  if (state.ack_pending && budget_packets != 0) {
    const uint8_t syndrome = ack_syndrome(qp);
    if (!send_acknowledge(qp, syndrome, state.expected_psn.minus(1))) return;
    const uint8_t code = syndrome & wire::kAethValueMask;
    state.credits_sent = code != wire::kAethCreditsInvalid;
    if (state.credits_sent) state.credited_ssn = wire::Psn(state.msn + wire::kCreditsOfCode[code]);
    --budget_packets;
    state.ack_pending = state.ack_owed = false;
    ++context_.counters.acks_sent;
  }
}

void Responder::send_last_answer(QueuePair& qp) {
  const ResponderState& state = qp.responder;
  // If responses are still queued, an acknowledgement would make the requester request their READs again.
  if ((qp.type != QpType::rc && qp.type != QpType::xrc_recv) || state.job_count != 0) return;
  if (state.nak_pending)
    static_cast<void>(send_acknowledge(qp, state.nak_syndrome, state.nak_psn));
  else if (state.ack_owed || state.ack_pending)
    static_cast<void>(send_acknowledge(qp, ack_syndrome(qp), state.nak_psn.minus(1)));
}

bool Responder::send_acknowledge(QueuePair& qp, uint8_t syndrome, wire::Psn psn, StallNotification word) {
  wire::PacketFields& fields = fields_;
  fields.bth.opcode = qp.in_service(wire::Opcode::rc_acknowledge);
  fields.bth.psn = psn;
  fields.bth.page_fault = word == StallNotification::page_fault && qp.responder.peer_selective;
  fields.bth.page_ready = word == StallNotification::page_ready && qp.responder.peer_selective;
  fields.aeth = {syndrome, qp.responder.msn};
  return emit_headers(context_, qp, fields);
}

/// The rest of a response is no longer accessible: the NAK replaces the next packet (IBA 9.7.5.1.5). Returns
/// true if other packets may follow.
bool Responder::refuse_rest_of_response(QueuePair& qp, const QueuedResponse& job, wire::Psn psn) {
  ResponderState& state = qp.responder;
  state.job_count = 0;
  if (job.duplicate) {
    refuse_duplicate(qp, psn);
    return true;
  }
  context_.count(DropReason::access);
  context_.blame_access(qp, {job.rkey, job.domain, odp::kRemoteRead, qp.qpn}, job.va, job.length_bytes);
  nak_and_close(qp, wire::NakCode::remote_access_error, AsyncEvent::qp_access_error);
  state.nak_psn = psn;
  return false;
}

/// Sends one packet of the oldest queued response. Returns false if it has to wait. Also returns true if
/// nothing was sent, since a page had to be made resident: call again.
bool Responder::send_answer(QueuePair& qp) {
  ResponderState& state = qp.responder;
  QueuedResponse& job = state.job(0);
  TxFrame* const frame = next_frame(context_, qp);
  if (frame == nullptr) return false;
  const uint32_t offset = job.sent_packets * qp.mtu_bytes;
  const uint32_t payload_bytes = std::min(qp.mtu_bytes, job.length_bytes - offset);
  const bool last = job.sent_packets + 1 == job.packets;
  const wire::Psn psn = job.first_psn.plus(job.sent_packets);
  const wire::Opcode opcode =
      qp.in_service(job.kind == ResponseKind::atomic ? wire::Opcode::rc_atomic_acknowledge
                                                     : read_response_opcode(job.sent_packets == 0, last));
  wire::PacketFields& fields = fields_;
  fields.bth = wire::make_bth(opcode, false, qp.attributes.destination_qpn, psn, 0);
  fields.atomic_ack = job.original;
  fields.aeth = {ack_syndrome(qp), job.msn};
  fields.ipv4_identification = static_cast<uint16_t>(qp.tx_packets);
  odp::Outcome outcome = odp::Outcome::done;
  const auto fill = [&](std::span<uint8_t> to, uint32_t * crc) __attribute__((always_inline)) {
    if (to.empty()) return true;
    const odp::Target target{job.rkey, job.domain, odp::kRemoteRead, qp.qpn};
    const uint64_t va = job.va + offset;
    outcome = crc != nullptr ? context_.memory.read_with_crc(target, va, to, *crc)
                             : context_.memory.read(target, va, to);
    return outcome == odp::Outcome::done;
  };
  const FrameForm form{.loopback = qp.loopback, .crc_in_copy = true};
  const uint32_t frame_bytes = emit(context_, *frame, qp.frame, fields, payload_bytes, form, fill);
  if (outcome == odp::Outcome::miss) return hold_read_job(qp, job);
  if (outcome == odp::Outcome::violation) return refuse_rest_of_response(qp, job, psn);
  context_.note_sent(qp, frame_bytes);
  ++qp.tx_packets;
  note_recorded(context_, qp, fields, payload_bytes);
  ++job.sent_packets;
  state.job_deadline_ns = kNever;
  state.job_floor = state.job_generation + 1;
  if (last) {
    state.job_head = state.slot_of_job(1);
    --state.job_count;
  }
  return true;
}

/// Delays a READ response whose page is missing; other packets of the QP proceed. Returns true if the page is
/// resident now: the response may be built again.
bool Responder::hold_read_job(QueuePair& qp, const QueuedResponse& job) {
  ResponderState& state = qp.responder;
  ++context_.counters.faults_responder;
  const uint32_t offset = job.sent_packets * qp.mtu_bytes;
  state.job_stuck_psn = job.first_psn.plus(job.sent_packets);
  state.job_stuck_again = job.duplicate;
  if (!state.job_fault.is_of(state.job_stuck_psn, state.job_floor)) {
    state.job_fault = {.is_open = false, .generation = ++state.job_generation, .psn = state.job_stuck_psn};
    const FaultWaiter waiter{qp.qpn, FaultRole::read_job, state.job_generation};
    const FaultAnswer answer = context_.request_fault(qp, {job.rkey, job.domain, odp::kRemoteRead, qp.qpn},
                                                      job.va + offset, job.length_bytes - offset, waiter);
    if (answer == FaultAnswer::served) return true;
    state.job_fault.is_open = answer == FaultAnswer::queued;
  }
  state.job_fault_wait = state.job_fault.is_open;
  if (!state.job_fault_wait) context_.make_ready(qp);
  if (state.job_deadline_ns == kNever)
    state.job_deadline_ns = stall_deadline(qp, state.job_stuck_psn, context_.config.answer_deadline_ns);
  context_.arm(qp, state.job_deadline_ns);
  schedule_stall_notification(qp);
  return false;
}

void Responder::on_read_job_resolved(QueuePair& qp, uint32_t generation, odp::Outcome outcome) {
  ResponderState& state = qp.responder;
  state.job_fault.note_answer(generation);
  if (static_cast<int32_t>(generation - state.job_floor) < 0) return;
  if (outcome == odp::Outcome::violation) {
    if (state.job_stuck_again || (state.job_count != 0 && state.job(0).duplicate)) {
      state.job_count = 0;
      state.job_fault_wait = false;
      state.job_deadline_ns = kNever;
      return refuse_duplicate(qp, state.job_stuck_psn);
    }
    // Also if an RNR NAK was sent instead of the response: the READ would only miss again.
    state.job_count = 0;
    context_.count(DropReason::access);
    CoreContext::blame_page(qp, status::FailureCause::refused_page);
    nak_and_close(qp, wire::NakCode::remote_access_error, AsyncEvent::qp_access_error);
    state.nak_psn = state.job_stuck_psn;
  }
  state.job_fault_wait = false;
  if (state.job_count == 0) {
    state.job_deadline_ns = kNever;
    if (state.owes_ready_notification) state.ready_notification_pending = true;
  } else if (state.job_deadline_ns <= context_.now_ns)
    state.job_deadline_ns = context_.now_ns + 1;
  context_.make_ready(qp);
}

/// Sends an RNR NAK for a READ whose page took too long. If a NAK for a later packet is pending, both are
/// sent, the RNR NAK first and at once: a requester that has asked for this READ again before does not repeat
/// that for the other NAK alone. To a requester that has the response the RNR NAK is stale, and the other NAK
/// counts.
void Responder::refuse_late_read(QueuePair& qp, wire::Psn psn) {
  ResponderState& state = qp.responder;
  const bool nak_was_sent = state.nak_sent;
  const bool was_pending = state.nak_pending;
  const uint8_t syndrome = state.nak_syndrome;
  const wire::Psn nak_psn = state.nak_psn;
  const bool for_fault = state.nak_for_fault;
  nak_fault(qp, psn);
  state.nak_sent = nak_was_sent;  // expected_psn is unchanged: only the READ is requested again
  if (!was_pending) return;
  if (send_acknowledge(qp, state.nak_syndrome, psn, StallNotification::page_fault))
    ++context_.counters.rnr_naks_sent;
  state.nak_syndrome = syndrome;
  state.nak_psn = nak_psn;
  state.nak_for_fault = for_fault;
}

void Responder::on_timer(QueuePair& qp) {
  ResponderState& state = qp.responder;
  if (state.held_deadline_ns <= context_.now_ns) context_.parking.release_held(qp);
  if (state.park_deadline_ns <= context_.now_ns) rnr_nak_parked(qp);
  if (state.stall_notification_ns <= context_.now_ns) {
    constexpr uint64_t kTellAgainNs = 2'000'000;
    const bool waits = state.parked_head != nullptr || state.job_fault_wait;
    state.stall_notification_ns = waits ? context_.now_ns + kTellAgainNs : kNever;
    if (waits) {
      state.stall_notification_pending = true;
      context_.make_ready(qp);
    }
  }
  if (state.job_deadline_ns <= context_.now_ns && state.closing) {
    // The NAK that ends this QP is queued after the response, whose deadline has passed.
    state.job_deadline_ns = kNever;
    state.job_count = 0;
    state.job_fault_wait = false;
    context_.make_ready(qp);
  } else if (state.job_deadline_ns <= context_.now_ns) {
    // The requester requests this READ and all later ones again, as duplicates.
    const QueuedResponse job = state.job(0);
    state.job_count = 0;
    state.job_fault_wait = false;
    state.job_deadline_ns = kNever;
    refuse_late_read(qp, job.first_psn.plus(job.sent_packets));
  }
}

}  // namespace faultline::transport
