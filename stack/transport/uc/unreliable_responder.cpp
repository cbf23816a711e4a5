// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/uc/unreliable_responder.hpp"

namespace faultline::transport {

/// Drops the message in progress. Its receive is kept for the next message.
void UnreliableResponder::abandon_message(QueuePair& qp) {
  qp.responder.message = InboundMessage::none;
  qp.responder.received_bytes = 0;
}

Execution UnreliableResponder::drop_message(QueuePair& qp, DropReason reason) {
  context_.count(reason);
  abandon_message(qp);
  return Execution::done;
}

Fate UnreliableResponder::on_request(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame) {
  ResponderState& state = qp.responder;
  if (state.parked_head != nullptr) {
    if (context_.parking.park(qp, frame)) return Fate::parked;
    context_.count(DropReason::park_full);
    return Fate::consumed;
  }
  if (execute(qp, packet) == Execution::done) return Fate::consumed;
  if (!context_.parking.park(qp, frame)) {
    context_.count(DropReason::park_full);
    give_up(qp);
    return Fate::consumed;
  }
  state.park_deadline_ns = context_.now_ns + context_.config.unreliable_deadline_ns;
  context_.arm(qp, state.park_deadline_ns);
  return Fate::parked;
}

Execution UnreliableResponder::execute(QueuePair& qp, const wire::Packet& packet) {
  for (unsigned tries = 0; tries != kMostRetriesInPlace; ++tries)
    if (const Execution result = execute_once(qp, packet); result != Execution::retry) return result;
  context_.retry_parked_later(qp);
  return Execution::miss;
}

Execution UnreliableResponder::execute_once(QueuePair& qp, const wire::Packet& packet) {
  ResponderState& state = qp.responder;
  const wire::OpcodeInfo& info = *packet.info;
  if (packet.bth.psn != state.expected_psn) {
    ++context_.counters.out_of_sequence;
    ++qp.counters.out_of_sequence;
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
    state.expected_psn = packet.bth.psn.next();
    return drop_message(qp, fits ? DropReason::payload_rule : DropReason::out_of_sequence);
  }
  const Execution result =
      info.operation == wire::Operation::send ? receive_send(qp, packet) : receive_write(qp, packet);
  if (result != Execution::done) return result;
  state.expected_psn = packet.bth.psn.next();
  state.park_deadline_ns = kNever;
  state.park_floor = state.park_generation + 1;
  if (info.ends_message()) abandon_message(qp);
  return result;
}

Execution UnreliableResponder::receive_send(QueuePair& qp, const wire::Packet& packet) {
  ResponderState& state = qp.responder;
  if (packet.info->starts_message()) state.received_bytes = 0;
  if (!context_.take_receive(qp, qp.srq)) return drop_message(qp, DropReason::no_receive_wqe);
  const Receive& receive = qp.receive;
  const uint32_t total = state.received_bytes + packet.payload_bytes;
  if (total > receive.length_bytes) return drop_message(qp, DropReason::payload_rule);
  SgeSpan stop;
  switch (
      scatter(context_.memory, receive.domain, receive.sges, state.received_bytes, packet.payload(), stop)) {
    case odp::Outcome::done:
      break;
    case odp::Outcome::miss:
      return miss(qp, {receive.sges[stop.index].lkey, receive.domain, odp::kLocalWrite}, stop.va,
                  stop.left_bytes);
    case odp::Outcome::violation:
      fail(qp);
      return Execution::done;
  }
  state.received_bytes = total;
  state.message = InboundMessage::send;
  if (packet.info->ends_message()) {
    complete_inbound(context_, qp, packet, CompletionOpcode::recv, total);
    ++context_.counters.messages_received;
  }
  return Execution::done;
}

/// Completes an invalid receive with an error; the QP fails.
void UnreliableResponder::fail(QueuePair& qp) {
  context_.report(qp, refuse_receive(context_, qp));
  context_.enter_error(qp);
  context_.raise(qp, AsyncEvent::qp_fatal);
}

std::optional<DropReason> UnreliableResponder::start_write(QueuePair& qp, const wire::Reth& reth) {
  ResponderState& state = qp.responder;
  const odp::Target target{reth.rkey, qp.domain, odp::kRemoteWrite, qp.qpn};
  if (reth.length_bytes > wire::kMaxMessageBytes) return DropReason::payload_rule;
  if (reth.length_bytes != 0 &&
      ((qp.attributes.access_flags & odp::kRemoteWrite) == 0 ||
       context_.memory.check(target, reth.va, reth.length_bytes) != odp::Outcome::done))
    return DropReason::access;
  state.write_va = reth.va;
  state.write_rkey = reth.rkey;
  state.write_total_bytes = state.write_left_bytes = reth.length_bytes;
  return std::nullopt;
}

Execution UnreliableResponder::receive_write(QueuePair& qp, const wire::Packet& packet) {
  ResponderState& state = qp.responder;
  const wire::OpcodeInfo& info = *packet.info;
  if (info.starts_message())
    if (const auto reason = start_write(qp, packet.reth())) return drop_message(qp, *reason);
  if (!adds_up(state, packet)) return drop_message(qp, DropReason::payload_rule);
  if (info.has(wire::kImmDt) && !context_.take_receive(qp, qp.srq))
    return drop_message(qp, DropReason::no_receive_wqe);
  if (packet.payload_bytes != 0) {
    const odp::Target target{state.write_rkey, qp.domain, odp::kRemoteWrite, qp.qpn};
    switch (context_.memory.write(target, state.write_va, packet.payload())) {
      case odp::Outcome::done:
        break;
      case odp::Outcome::miss:
        return miss(qp, target, state.write_va, state.write_left_bytes);
      case odp::Outcome::violation:
        return drop_message(qp, DropReason::access);
    }
  }
  state.write_va += packet.payload_bytes;
  state.write_left_bytes -= packet.payload_bytes;
  state.message = InboundMessage::write;
  if (info.has(wire::kImmDt))
    complete_inbound(context_, qp, packet, CompletionOpcode::recv_rdma_with_imm, state.write_total_bytes);
  if (info.ends_message()) {
    ++context_.counters.messages_received;
    if (qp.is_counted) [[unlikely]]
      count_remote_write(qp);
  }
  return Execution::done;
}

/// Requests a missing page. The request covers the rest of the message.
Execution UnreliableResponder::miss(QueuePair& qp, const odp::Target& target, uint64_t va,
                                    uint64_t length_bytes) {
  ResponderState& state = qp.responder;
  ++context_.counters.faults_responder;
  state.fault_of_receive = target.need == odp::kLocalWrite;
  const FaultWaiter waiter{qp.qpn, FaultRole::parked, ++state.park_generation};
  const FaultAnswer answer = context_.request_fault(qp, target, va, length_bytes, waiter);
  if (answer == FaultAnswer::served) return Execution::retry;
  state.parked_retry = answer == FaultAnswer::full;
  if (state.parked_retry) context_.make_ready(qp);
  return Execution::miss;
}

void UnreliableResponder::retry_parked(QueuePair& qp) {
  ResponderState& state = qp.responder;
  state.parked_retry = false;
  while (state.parked_head != nullptr) {
    RxFrame frame = state.parked_head->frame;
    if (execute(qp, parse_again(frame)) == Execution::miss) {
      if (state.park_deadline_ns == kNever)
        state.park_deadline_ns = context_.now_ns + context_.config.unreliable_deadline_ns;
      context_.arm(qp, state.park_deadline_ns);
      return;
    }
    if (state.parked_head == nullptr) return;  // a failure of the QP released them
    context_.parking.unpark_head(qp);
    context_.port.release({&frame, 1});
  }
  state.park_deadline_ns = kNever;
}

void UnreliableResponder::on_parked_resolved(QueuePair& qp, uint32_t generation, odp::Outcome outcome) {
  ResponderState& state = qp.responder;
  if (static_cast<int32_t>(generation - state.park_floor) < 0) return;
  if (outcome == odp::Outcome::violation) {
    context_.count(DropReason::access);
    if (state.parked_head != nullptr && state.fault_of_receive) {
      CoreContext::blame_page(qp, status::FailureCause::receive_memory);
      return fail(qp);
    }
    return give_up(qp);
  }
  if (state.parked_head == nullptr) return;
  // The page is resident: the retry takes precedence over the deadline, even if that expires in this turn.
  if (state.park_deadline_ns <= context_.now_ns) state.park_deadline_ns = context_.now_ns + 1;
  context_.retry_parked_later(qp);
}

void UnreliableResponder::on_timer(QueuePair& qp) {
  if (qp.responder.park_deadline_ns <= context_.now_ns) give_up(qp);
}

/// Drops the message if the page fault fails or takes too long, as for a loss on the wire.
void UnreliableResponder::give_up(QueuePair& qp) {
  context_.parking.release_parked(qp);
  abandon_message(qp);
  qp.responder.park_floor = qp.responder.park_generation;  // later packets do not wait for that page
}

}  // namespace faultline::transport
