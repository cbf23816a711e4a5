// SPDX-License-Identifier: BSD-3-Clause
// The responder of UC: a message arrives whole and in order or is dropped without notice (IBA 9.8.2).
#include "stack/transport/rc/responder.hpp"

namespace faultline::transport {

/// Drops the message in progress. Its receive is kept for the next message.
void Responder::abandon_message(QueuePair& qp) {
  qp.responder.message = InboundMessage::none;
  qp.responder.received_bytes = 0;
}

Responder::Fate Responder::on_unreliable(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame) {
  ResponderState& state = qp.responder;
  if (state.parked_head != nullptr) {
    if (context_.park(qp, frame)) return Fate::parked;
    context_.count(DropReason::park_full);
    return Fate::consumed;
  }
  if (execute_unreliable(qp, packet) == Result::done) return Fate::consumed;
  if (!context_.park(qp, frame)) {
    context_.count(DropReason::park_full);
    give_up_unreliable(qp);
    return Fate::consumed;
  }
  state.park_deadline_ns = context_.now_ns + context_.config.unreliable_deadline_ns;
  context_.arm(qp, state.park_deadline_ns);
  return Fate::parked;
}

Responder::Result Responder::execute_unreliable(QueuePair& qp, const wire::Packet& packet) {
  for (unsigned tries = 0; tries != kMostRetriesInPlace; ++tries)
    if (const Result result = execute_unreliable_once(qp, packet); result != Result::retry) return result;
  return retry_later(qp);
}

Responder::Result Responder::execute_unreliable_once(QueuePair& qp, const wire::Packet& packet) {
  ResponderState& state = qp.responder;
  const wire::OpcodeInfo& info = *packet.info;
  if (packet.bth.psn != state.expected_psn) {
    ++context_.counters.out_of_sequence;
    abandon_message(qp);
    state.expected_psn = packet.bth.psn;
  }
  if (info.starts_message() && state.message != InboundMessage::none) abandon_message(qp);
  // An invalid packet, or one of a message whose start is missing, is dropped until the next start of a
  // message.
  const bool fits = info.starts_message() ||
                    state.message == (info.operation == wire::Operation::send ? InboundMessage::send
                                                                              : InboundMessage::write);
  if (!fits || !length_allowed(qp, packet)) {
    context_.count(fits ? DropReason::payload_rule : DropReason::out_of_sequence);
    abandon_message(qp);
    state.expected_psn = packet.bth.psn.next();
    return Result::done;
  }
  const Result result =
      info.operation == wire::Operation::send ? receive_send(qp, packet) : receive_write(qp, packet);
  if (result != Result::done) return result;
  state.expected_psn = packet.bth.psn.next();
  state.park_deadline_ns = kNever;
  state.park_floor = state.park_generation + 1;
  if (info.ends_message()) abandon_message(qp);
  return result;
}

Responder::Result Responder::receive_send(QueuePair& qp, const wire::Packet& packet) {
  ResponderState& state = qp.responder;
  if (packet.info->starts_message()) state.received_bytes = 0;
  if (!take_receive(qp)) {
    context_.count(DropReason::no_receive_wqe);
    abandon_message(qp);
    return Result::done;
  }
  const Receive& receive = qp.receive;
  const uint32_t total = state.received_bytes + packet.payload_bytes;
  if (total > receive.length_bytes) {
    context_.count(DropReason::payload_rule);
    abandon_message(qp);
    return Result::done;
  }
  SgeSpan stop;
  switch (
      scatter(context_.memory, receive.domain, receive.sges, state.received_bytes, packet.payload(), stop)) {
    case odp::Outcome::done:
      break;
    case odp::Outcome::miss:
      return miss(qp, {receive.sges[stop.index].lkey, receive.domain, odp::kLocalWrite}, stop.va,
                  stop.left_bytes);
    case odp::Outcome::violation:
      fail_receive(qp);
      return Result::done;
  }
  state.received_bytes = total;
  state.message = InboundMessage::send;
  if (packet.info->ends_message()) {
    complete_inbound(qp, packet, CompletionOpcode::recv, total);
    ++context_.counters.messages_received;
  }
  return Result::done;
}

/// Completes an invalid receive with an error; the QP fails.
void Responder::fail_receive(QueuePair& qp) {
  Completion completion;
  completion.status = CompletionStatus::local_protection;
  completion.opcode = CompletionOpcode::recv;
  context_.complete_receive(qp, completion);
  context_.report(qp, completion.status);
  context_.enter_error(qp);
  context_.raise(qp, AsyncEvent::qp_fatal);
}

Responder::Result Responder::receive_write(QueuePair& qp, const wire::Packet& packet) {
  ResponderState& state = qp.responder;
  const wire::OpcodeInfo& info = *packet.info;
  const auto drop = [&](DropReason reason) {
    context_.count(reason);
    abandon_message(qp);
    return Result::done;
  };
  if (info.starts_message()) {
    const wire::Reth reth = packet.reth();
    const odp::Target target{reth.rkey, qp.domain, odp::kRemoteWrite, qp.qpn};
    if (reth.length_bytes > wire::kMaxMessageBytes) return drop(DropReason::payload_rule);
    if (reth.length_bytes != 0 &&
        ((qp.attributes.access_flags & odp::kRemoteWrite) == 0 ||
         context_.memory.check(target, reth.va, reth.length_bytes) != odp::Outcome::done))
      return drop(DropReason::access);
    state.write_va = reth.va;
    state.write_rkey = reth.rkey;
    state.write_total_bytes = state.write_left_bytes = reth.length_bytes;
  }
  if (packet.payload_bytes > state.write_left_bytes ||
      (info.ends_message() ? packet.payload_bytes != state.write_left_bytes
                           : packet.payload_bytes == state.write_left_bytes))
    return drop(DropReason::payload_rule);
  if (info.has(wire::kImmDt) && !take_receive(qp)) return drop(DropReason::no_receive_wqe);
  if (packet.payload_bytes != 0) {
    const odp::Target target{state.write_rkey, qp.domain, odp::kRemoteWrite, qp.qpn};
    switch (context_.memory.write(target, state.write_va, packet.payload())) {
      case odp::Outcome::done:
        break;
      case odp::Outcome::miss:
        return miss(qp, target, state.write_va, state.write_left_bytes);
      case odp::Outcome::violation:
        return drop(DropReason::access);
    }
  }
  state.write_va += packet.payload_bytes;
  state.write_left_bytes -= packet.payload_bytes;
  state.message = InboundMessage::write;
  if (info.has(wire::kImmDt))
    complete_inbound(qp, packet, CompletionOpcode::recv_rdma_with_imm, state.write_total_bytes);
  if (info.ends_message()) ++context_.counters.messages_received;
  return Result::done;
}

void Responder::retry_unreliable(QueuePair& qp) {
  ResponderState& state = qp.responder;
  state.parked_retry = false;
  while (state.parked_head != nullptr) {
    RxFrame frame = state.parked_head->frame;
    if (execute_unreliable(qp, parsed(frame)) == Result::miss) {
      if (state.park_deadline_ns == kNever)
        state.park_deadline_ns = context_.now_ns + context_.config.unreliable_deadline_ns;
      context_.arm(qp, state.park_deadline_ns);
      return;
    }
    if (state.parked_head == nullptr) return;  // a failure of the QP released them
    context_.unpark_head(qp);
    context_.port.release({&frame, 1});
  }
  state.park_deadline_ns = kNever;
}

/// Drops the message if the page fault fails or takes too long, as for a loss on the wire.
void Responder::give_up_unreliable(QueuePair& qp) {
  context_.release_parked(qp);
  abandon_message(qp);
  qp.responder.park_floor = qp.responder.park_generation;  // later packets do not wait for that page
}

}  // namespace faultline::transport
