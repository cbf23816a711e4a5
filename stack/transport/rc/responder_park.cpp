// SPDX-License-Identifier: BSD-3-Clause
// Parked packets of the responder: how long they wait for their page, what the requester is sent meanwhile,
// and their execution once the page is resident.
#include <algorithm>

#include "stack/transport/rc/responder.hpp"

namespace faultline::transport {

/// Sends an RNR NAK for a page fault. A peer that knows the page_fault bit counts no retry and is notified
/// when the page is resident; its timer only covers a lost notification. Another peer counts each NAK as a
/// retry. Each further NAK for the same page therefore requests four times the wait of the previous one, so
/// that few retries last as long as a page fault. (IBA 9.7.5.2.8, table 45: four codes further is four times
/// as long.)
void Responder::nak_fault(QueuePair& qp, wire::Psn psn) {
  constexpr uint8_t kUntilTold = 20;  // 10.24 ms
  constexpr uint8_t kFurther = 4;
  constexpr uint8_t kLongest = 31;
  ResponderState& state = qp.responder;
  if (state.fault_nak_psn != psn) state.fault_naks = 0;
  state.fault_nak_psn = psn;
  uint8_t timer = context_.config.fault_rnr_timer;
  if (state.peer_selective)
    timer = kUntilTold;
  else if (timer != 0)  // code 0 is the longest timer
    timer = static_cast<uint8_t>(std::min<unsigned>(kLongest, timer + kFurther * unsigned{state.fault_naks}));
  state.owes_ready_notification = state.peer_selective;
  if (state.fault_naks < kLongest) ++state.fault_naks;
  nak(qp, static_cast<uint8_t>(wire::kAethRnrNak | timer), psn);
  state.nak_for_fault = true;
}

/// Returns the deadline for parking or delaying. Normally one RNR NAK is sent per page, and the retransmitted
/// packet is parked. A second NAK follows only when the wait could approach an ordinary requester's ACK
/// timeout. A peer that understands stall notifications gets them instead.
TimeNs Responder::stall_deadline(const QueuePair& qp, wire::Psn psn, uint64_t longest_ns) const {
  const uint64_t second_ns = qp.responder.peer_selective ? 20'000'000 : 2'000'000;
  if (was_nak_sent_for(qp, psn) && context_.config.stall != Stall::park)
    return context_.now_ns + std::max(longest_ns, second_ns);
  switch (context_.config.stall) {
    case Stall::park:
      return kNever;
    case Stall::rnr:
      return context_.now_ns;
    case Stall::park_then_rnr:
      break;
  }
  return context_.now_ns + longest_ns;
}

/// Sends one RNR NAK when packets are parked too long or do not fit. Parked packets are dropped; for a peer
/// that understands selective acknowledgements they are held and reported.
void Responder::rnr_nak_parked(QueuePair& qp) {
  ResponderState& state = qp.responder;
  if (state.peer_selective) hold_parked(qp);
  context_.parking.release_parked(qp);
  nak_fault(qp, state.expected_psn);
}

void Responder::retry_parked(QueuePair& qp) {
  ResponderState& state = qp.responder;
  state.parked_retry = false;
  while (state.parked_head != nullptr) {
    RxFrame frame = state.parked_head->frame;
    const wire::Packet packet = parse_again(frame);
    if (qp.type == QpType::xrc_recv) find_shared_queue(qp, packet);
    const int32_t ahead = packet.bth.psn.distance_from(state.expected_psn);
    if (ahead == 0) {
      if (execute(qp, packet) == Execution::miss) {
        // The deadline of a packet that missed before keeps running: it bounds the total wait.
        if (state.park_deadline_ns == kNever) state.park_deadline_ns = park_deadline(qp);
        context_.arm(qp, state.park_deadline_ns);
        return;
      }
    } else if (ahead > 0) {
      context_.parking.unpark_head(qp);  // holding it may need this entry
      if (on_gap(qp, packet, frame) == Fate::consumed) context_.port.release({&frame, 1});
      continue;
    } else {
      on_duplicate(qp, packet);
    }
    if (state.closing) {
      context_.parking.release_parked(qp);
      return;
    }
    context_.parking.unpark_head(qp);
    context_.port.release({&frame, 1});
  }
  state.park_deadline_ns = kNever;
  if (state.held_head != nullptr) execute_held(qp);
  if (state.dropped_after_park && state.parked_head == nullptr && !state.closing) {
    state.dropped_after_park = false;
    // The dropped packet may have been a copy of a parked one. A NAK for a PSN that was never sent is no
    // acknowledgement to a requester (IBA 9.7.5.1.2), and would replace one.
    if (!state.nak_sent && state.last_dropped >= state.expected_psn)
      nak(qp, nak_syndrome(wire::NakCode::psn_sequence_error), state.expected_psn);
  }
}

void Responder::on_parked_resolved(QueuePair& qp, uint32_t generation, odp::Outcome outcome) {
  ResponderState& state = qp.responder;
  state.park_fault.note_answer(generation);
  if (state.closing || static_cast<int32_t>(generation - state.park_floor) < 0) return;
  if (outcome == odp::Outcome::violation) {
    // Also if the packet was answered with an RNR NAK meanwhile: its retransmission would only miss again.
    context_.count(DropReason::access);
    if (qp.receive_taken && state.fault_of_receive) {
      CoreContext::blame_page(qp, status::FailureCause::receive_memory);
      fail_receive(context_, qp, CompletionStatus::local_protection);
      return nak_and_close(qp, wire::NakCode::remote_operational_error, AsyncEvent::qp_fatal);
    }
    CoreContext::blame_page(qp, status::FailureCause::refused_page);
    return nak_and_close(qp, wire::NakCode::remote_access_error, AsyncEvent::qp_access_error);
  }
  if (state.parked_head == nullptr) {
    if (state.owes_ready_notification) {
      state.ready_notification_pending = true;
      context_.make_ready(qp);
    }
    if (state.held_head != nullptr) execute_held(qp);
    return;
  }
  // The page is resident: the retry takes precedence over the deadline, even if that expires in this turn.
  if (state.park_deadline_ns <= context_.now_ns) state.park_deadline_ns = context_.now_ns + 1;
  context_.retry_parked_later(qp);
}

}  // namespace faultline::transport
