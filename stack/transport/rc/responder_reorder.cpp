// SPDX-License-Identifier: BSD-3-Clause
// Gap handling of the responder. If the requester understands selective acknowledgements, packets after a gap
// are kept in their buffers and reported. They are executed in PSN order once the gap is closed, for two
// reasons. Only the first packet of a WRITE has the address. No reader may see later bytes of a message
// before earlier ones. For other requesters IBA 9.7.5.1.2 applies: one NAK per gap, then silence.

#include "stack/transport/context/emit.hpp"
#include "stack/transport/rc/responder.hpp"

namespace faultline::transport {

Fate Responder::on_gap(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame) {
  ResponderState& state = qp.responder;
  ++context_.counters.out_of_sequence;
  ++qp.counters.out_of_sequence;
  const wire::Psn psn = packet.bth.psn;
  const bool in_map = psn.distance_from(state.expected_psn) <= static_cast<int32_t>(wire::SackEth::kPackets);
  const bool kept = state.peer_selective && in_map && context_.parking.hold(qp, psn, frame, context_.now_ns);
  if (!kept) context_.count(DropReason::out_of_sequence);
  if (state.held_head != nullptr) {
    state.sack_pending = true;
    context_.make_ready(qp);
  } else if (!state.nak_sent) {
    nak(qp, nak_syndrome(wire::NakCode::psn_sequence_error), state.expected_psn);
  }
  return kept ? Fate::parked : Fate::consumed;
}

void Responder::hold_parked(QueuePair& qp) {
  ResponderState& state = qp.responder;
  while (state.parked_head != nullptr) {
    RxFrame frame = state.parked_head->frame;
    const wire::Psn psn = parse_again(frame).bth.psn;
    context_.parking.unpark_head(qp);
    const int32_t ahead = psn.distance_from(state.expected_psn);
    const bool kept = ahead >= 0 && ahead <= static_cast<int32_t>(wire::SackEth::kPackets) &&
                      context_.parking.hold(qp, psn, frame, context_.now_ns);
    if (!kept) context_.port.release({&frame, 1});
  }
  if (state.held_head != nullptr) state.sack_pending = true;
}

void Responder::execute_held(QueuePair& qp) {
  ResponderState& state = qp.responder;
  while (state.held_head != nullptr && state.held_head->psn <= state.expected_psn) {
    const wire::Psn psn = state.held_head->psn;
    RxFrame frame = context_.parking.take_held_head(qp, context_.now_ns);
    if (psn == state.expected_psn) {
      const wire::Packet packet = parse_again(frame);
      if (qp.type == QpType::xrc_recv) find_shared_queue(qp, packet);
      if (execute(qp, packet) == Execution::miss) {
        if (park_missed(qp, frame)) return;
      } else if (!state.closing && state.expected_psn == psn &&
                 context_.parking.hold(qp, psn, frame, context_.now_ns)) {
        return;  // no receive is posted: keep it, since it was reported to the requester as received
      }
    }
    context_.port.release({&frame, 1});
  }
  if (state.held_head == nullptr || state.closing) return;
  state.sack_pending = true;
  context_.make_ready(qp);
}

bool Responder::send_selective_acknowledge(QueuePair& qp) {
  const ResponderState& state = qp.responder;
  wire::PacketFields fields;
  fields.bth.opcode = wire::Opcode::rc_selective_ack;
  fields.bth.psn = state.expected_psn;
  fields.aeth = {ack_syndrome(qp), state.msn};
  for (const ParkedFrame* held = state.held_head; held != nullptr; held = held->next) {
    const int32_t behind = held->psn.distance_from(state.expected_psn) - 1;
    if (behind >= 0 && behind < static_cast<int32_t>(wire::SackEth::kPackets))
      fields.sack_eth.add(static_cast<uint32_t>(behind));
  }
  if (!emit_headers(context_, qp, fields)) return false;
  ++context_.counters.selective_acks_sent;
  return true;
}

}  // namespace faultline::transport
