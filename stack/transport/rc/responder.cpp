// SPDX-License-Identifier: BSD-3-Clause
// The responder's receiving half: packet checks, one switch on the operation, and one function for each case.
#include "stack/transport/rc/responder.hpp"

#include <algorithm>

#include "stack/transport/qp/shared_receive_queue.hpp"

namespace faultline::transport {

namespace {

/// Limit on PSNs ahead of the expected one. No requester has this many packets in flight, so a packet beyond
/// the limit is a forgery with a guessed PSN. It is dropped without a NAK, which would make the requester
/// retransmit needlessly, and without using park room.
constexpr int32_t kFarthestAhead = 1 << 16;

/// True if a packet continues the message in progress, or starts one if none is (IBA 9.7.4.1.2).
bool fits_message(InboundMessage message, const wire::OpcodeInfo& info) {
  if (info.starts_message()) return message == InboundMessage::none;
  if (info.operation == wire::Operation::send) return message == InboundMessage::send;
  return info.operation == wire::Operation::write && message == InboundMessage::write;
}

uint32_t packets_of_read(const QueuePair& qp, const wire::Reth& reth) {
  return wire::packets_of(reth.length_bytes, qp.mtu_bytes);
}

}  // namespace

bool Responder::park_missed(QueuePair& qp, const RxFrame& frame) {
  const bool at_once =
      context_.config.stall == Stall::rnr && !was_nak_sent_for(qp, qp.responder.expected_psn);
  if (!at_once && context_.parking.park(qp, frame)) {
    qp.responder.park_deadline_ns = park_deadline(qp);
    context_.arm(qp, qp.responder.park_deadline_ns);
    schedule_stall_notification(qp);
    return true;
  }
  if (!at_once) context_.count(DropReason::park_full);
  rnr_nak_parked(qp);
  return false;
}

/// Arms the stall notification for a peer that understands it, before the peer's timeouts act.
void Responder::schedule_stall_notification(QueuePair& qp) {
  constexpr uint64_t kTellAfterNs = 50'000;
  if (!qp.responder.peer_selective) return;
  qp.responder.stall_notification_ns = context_.now_ns + kTellAfterNs;
  context_.arm(qp, qp.responder.stall_notification_ns);
}

/// An XRC target serves many SRQs: each packet names the SRQ of its message. Receives and keys belong to that
/// SRQ's protection domain (IBA A14.4.3).
void Responder::find_shared_queue(QueuePair& qp, const wire::Packet& packet) {
  SharedReceiveQueue* const srq = context_.shared_receives.find(packet.xrc_srq_number());
  qp.responder.srq =
      srq != nullptr && srq->xrc_domain == qp.xrc_domain && srq->xrc_domain != 0 ? srq : nullptr;
}

odp::ProtectionDomain Responder::domain_of(const QueuePair& qp) {
  if (qp.type != QpType::xrc_recv) return qp.domain;
  return qp.responder.srq == nullptr ? 0 : qp.responder.srq->domain;
}

bool Responder::take_receive(QueuePair& qp) {
  return context_.take_receive(qp, qp.type == QpType::xrc_recv ? qp.responder.srq : qp.srq);
}

Execution Responder::refuse_access(QueuePair& qp, const odp::Target& target, uint64_t va,
                                   uint64_t length_bytes) {
  context_.blame_access(qp, target, va, length_bytes);
  context_.count(DropReason::access);
  nak_and_close(qp, wire::NakCode::remote_access_error, AsyncEvent::qp_access_error);
  return Execution::done;
}

/// A function that is disabled for the QP counts as an unsupported opcode, whatever the key would allow (IBA
/// 9.7.4.1.4, table 54).
Execution Responder::refuse_function(QueuePair& qp) {
  context_.count(DropReason::unsupported);
  CoreContext::blame(qp, status::FailureCause::function_disabled);
  nak_and_close(qp, wire::NakCode::invalid_request, AsyncEvent::qp_request_error);
  return Execution::done;
}

/// A message has at most 2^31 bytes, and its packets have the lengths that opcode, MTU and RETH require (IBA
/// 9.7.4.1.6).
Execution Responder::refuse_length(QueuePair& qp) {
  context_.count(DropReason::payload_rule);
  CoreContext::blame(qp, status::FailureCause::malformed_request);
  nak_and_close(qp, wire::NakCode::invalid_request, AsyncEvent::qp_request_error);
  return Execution::done;
}

/// Requests a missing page, unless that has been done. The request covers the rest of the message. Returns
/// retry if the page is resident now, else miss: the caller parks the packet.
[[gnu::noinline]] Execution Responder::miss(QueuePair& qp, const odp::Target& target, uint64_t va,
                                            uint64_t length_bytes) {
  ResponderState& state = qp.responder;
  ++context_.counters.faults_responder;
  state.fault_of_receive = target.need == odp::kLocalWrite;
  const bool asked = state.park_fault.is_of(state.expected_psn, state.park_floor);
  if (!asked) {
    state.park_fault = {.is_open = false, .generation = ++state.park_generation, .psn = state.expected_psn};
    const FaultWaiter waiter{qp.qpn, FaultRole::parked, state.park_generation};
    const FaultAnswer answer = context_.request_fault(qp, target, va, length_bytes, waiter);
    if (answer == FaultAnswer::served) return Execution::retry;
    state.park_fault.is_open = answer == FaultAnswer::queued;
  }
  state.nak_sent = false;
  // Acknowledge executed packets before the wait, so that several faults in a row do not add up to the
  // requester's timeout.
  if (state.ack_owed) state.ack_pending = true;
  state.parked_retry = !state.park_fault.is_open;
  if (state.parked_retry || state.ack_pending) context_.make_ready(qp);
  return Execution::miss;
}

/// Advances the responder's state after a SEND or WRITE packet is in memory.
[[gnu::always_inline]] inline void Responder::finish_packet(QueuePair& qp, const wire::Packet& packet) {
  ResponderState& state = qp.responder;
  state.advance(1);
  state.ack_owed = true;
  state.park_deadline_ns = kNever;
  state.park_floor = state.park_generation + 1;
  settle_nak(qp, packet.bth.psn);
  if (packet.info->ends_message()) {
    state.message = InboundMessage::none;
    state.msn = (state.msn + 1) & wire::Psn::kMask;
    ++context_.counters.messages_received;
  }
  if (packet.bth.ack_request) {
    state.ack_pending = true;
    context_.make_ready(qp);
  }
}

/// The receive's memory refuses the message (IBA 9.7.5.2.4).
[[gnu::noinline]] Execution Responder::refuse_memory(QueuePair& qp) {
  const bool too_long = refuse_receive(context_, qp) == CompletionStatus::local_length;
  nak_and_close(qp, too_long ? wire::NakCode::invalid_request : wire::NakCode::remote_operational_error,
                AsyncEvent::qp_fatal);
  return Execution::done;
}

Execution Responder::execute_send(QueuePair& qp, const wire::Packet& packet) {
  ResponderState& state = qp.responder;
  const wire::OpcodeInfo& info = *packet.info;
  if (!take_receive(qp)) {
    context_.count(DropReason::no_receive_wqe);
    nak(qp, static_cast<uint8_t>(wire::kAethRnrNak | qp.attributes.min_rnr_timer), packet.bth.psn);
    return Execution::done;
  }
  // Not in take_receive(): a WRITE with immediate that waits for a page has taken a receive too.
  if (info.starts_message()) state.received_bytes = 0;
  const Receive& receive = qp.receive;
  const uint32_t total = state.received_bytes + packet.payload_bytes;
  if (total > receive.length_bytes) {
    // A length error: the responder completes with a local length error, and the requester gets NAK invalid
    // request (IBA 9.7.5.2.4), as from adapters. Linux's rxe intends the same but sends NAK 3
    // (docs/conformance.md).
    CoreContext::blame(qp, status::FailureCause::receive_too_short);
    fail_receive(context_, qp, CompletionStatus::local_length);
    nak_and_close(qp, wire::NakCode::invalid_request, AsyncEvent::qp_fatal);
    return Execution::done;
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
      return refuse_memory(qp);
  }
  state.received_bytes = total;
  state.message = InboundMessage::send;
  if (info.ends_message()) {
    if (info.has(wire::kIeth) && !invalidate(qp, packet)) return Execution::done;
    complete_inbound(context_, qp, packet, CompletionOpcode::recv, total);
  }
  finish_packet(qp, packet);
  return Execution::done;
}

[[gnu::always_inline]] inline Execution Responder::execute_write(QueuePair& qp, const wire::Packet& packet) {
  ResponderState& state = qp.responder;
  const wire::OpcodeInfo& info = *packet.info;
  odp::Target target{state.write_rkey, domain_of(qp), odp::kRemoteWrite, qp.qpn};
  if (info.starts_message()) {
    const wire::Reth reth = packet.reth();
    target.key = reth.rkey;
    if (!is_enabled(qp, odp::kRemoteWrite)) return refuse_function(qp);
    if (reth.length_bytes > wire::kMaxMessageBytes) [[unlikely]]
      return refuse_length(qp);
    // If this packet is the whole message, the write itself makes the same checks of the same range.
    const bool whole =
        info.ends_message() && reth.length_bytes == packet.payload_bytes && !info.has(wire::kImmDt);
    if (reth.length_bytes != 0 && !whole &&
        context_.memory.check(target, reth.va, reth.length_bytes) != odp::Outcome::done)
      return refuse_access(qp, target, reth.va, reth.length_bytes);
    state.write_va = reth.va;
    state.write_rkey = reth.rkey;
    state.write_total_bytes = state.write_left_bytes = reth.length_bytes;
  }
  if (!adds_up(state, packet)) return refuse_length(qp);
  const bool immediate = info.has(wire::kImmDt);
  if (immediate && !take_receive(qp)) {
    context_.count(DropReason::no_receive_wqe);
    nak(qp, static_cast<uint8_t>(wire::kAethRnrNak | qp.attributes.min_rnr_timer), packet.bth.psn);
    return Execution::done;
  }
  if (packet.payload_bytes != 0) {
    switch (context_.memory.write(target, state.write_va, packet.payload())) {
      case odp::Outcome::done:
        break;
      case odp::Outcome::miss:
        return miss(qp, target, state.write_va, state.write_left_bytes);
      case odp::Outcome::violation:
        return refuse_access(qp, target, state.write_va, packet.payload_bytes);
    }
  }
  state.write_va += packet.payload_bytes;
  state.write_left_bytes -= packet.payload_bytes;
  state.message = InboundMessage::write;
  if (immediate)
    complete_inbound(context_, qp, packet, CompletionOpcode::recv_rdma_with_imm, state.write_total_bytes);
  if (qp.is_counted && info.ends_message()) [[unlikely]]
    count_remote_write(qp);
  finish_packet(qp, packet);
  return Execution::done;
}

/// Executes one packet at the expected PSN. retry: a page of it has become resident; call again.
[[gnu::always_inline]] inline Execution Responder::execute_once(QueuePair& qp, const wire::Packet& packet) {
  ResponderState& state = qp.responder;
  const wire::OpcodeInfo& info = *packet.info;
  if (qp.type == QpType::xrc_recv && state.srq == nullptr) {
    // No such queue in the QP's XRC domain (IBA A14.4.3).
    context_.count(DropReason::no_shared_queue);
    CoreContext::blame(qp, status::FailureCause::no_shared_queue);
    nak_and_close(qp, wire::NakCode::invalid_request, AsyncEvent::qp_request_error);
    return Execution::done;
  }
  if (!fits_message(state.message, info) || !length_allowed(qp, packet)) return refuse_length(qp);
  switch (info.operation) {
    case wire::Operation::send:
      return execute_send(qp, packet);
    case wire::Operation::write:
      return execute_write(qp, packet);
    case wire::Operation::read_request:
      return execute_read(qp, packet);
    case wire::Operation::compare_swap:
    case wire::Operation::fetch_add:
      return execute_atomic(qp, packet);
    case wire::Operation::atomic_write:
      return execute_atomic_write(qp, packet);
    case wire::Operation::flush:
      return execute_flush(qp, packet);
    default:
      return refuse_function(qp);
  }
}

Execution Responder::execute(QueuePair& qp, const wire::Packet& packet) {
  for (unsigned tries = 0; tries != kMostRetriesInPlace; ++tries)
    if (const Execution result = execute_once(qp, packet); result != Execution::retry) return result;
  // The pages were taken away again and again: the packet is parked until the next turn.
  context_.retry_parked_later(qp);
  return Execution::miss;
}

Fate Responder::on_request(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame) {
  ResponderState& state = qp.responder;
  if (state.closing) {
    context_.count(DropReason::qp_state);
    return Fate::consumed;
  }
  if (qp.type == QpType::xrc_recv) find_shared_queue(qp, packet);
  const int32_t ahead = packet.bth.psn.distance_from(state.expected_psn);
  if (ahead > kFarthestAhead) {
    context_.count(DropReason::out_of_sequence);
    return Fate::consumed;
  }
  if (packet.bth.selective_ack && context_.config.selective_ack) state.peer_selective = true;
  if (ahead == 0 && state.parked_head != nullptr && state.peer_selective) {
    // The packet is parked already and the sender does not know.
    context_.count(DropReason::duplicate);
    state.stall_notification_pending = true;
    context_.make_ready(qp);
    return Fate::consumed;
  }
  if (ahead >= 0 && state.parked_head != nullptr) {
    if (context_.parking.park(qp, frame)) return Fate::parked;
    // Parked packets stay; a NAK requests the dropped ones after they are executed.
    context_.count(DropReason::park_full);
    if (!state.dropped_after_park || state.last_dropped < packet.bth.psn) state.last_dropped = packet.bth.psn;
    state.dropped_after_park = true;
    return Fate::consumed;
  }
  if (ahead > 0) return on_gap(qp, packet, frame);
  if (ahead < 0) {
    ++context_.counters.duplicate_requests;
    ++qp.counters.duplicate_requests;
    on_duplicate(qp, packet);
    return Fate::consumed;
  }
  Execution result = execute_once(qp, packet);
  if (result == Execution::retry) [[unlikely]]
    result = execute(qp, packet);
  if (result == Execution::done) {
    if (state.held_head != nullptr) execute_held(qp);
    return Fate::consumed;
  }
  return park_missed(qp, frame) ? Fate::parked : Fate::consumed;
}

Execution Responder::execute_read(QueuePair& qp, const wire::Packet& packet) {
  const wire::Reth reth = packet.reth();
  if (!has_room_for_answer(qp)) return Execution::done;
  if (!is_enabled(qp, odp::kRemoteRead)) return refuse_function(qp);
  if (reth.length_bytes > wire::kMaxMessageBytes) [[unlikely]]
    return refuse_length(qp);
  if (!may_read(qp, reth))
    return refuse_access(qp, {reth.rkey, domain_of(qp), odp::kRemoteRead, qp.qpn}, reth.va,
                         reth.length_bytes);
  const uint32_t packets = packets_of_read(qp, reth);
  finish_answered(qp, packet.bth.psn, packets);
  fill_read(qp, qp.responder.job(qp.responder.job_count++), packet, reth, packets, false);
  return Execution::done;
}

bool Responder::may_read(const QueuePair& qp, const wire::Reth& reth) {
  if (reth.length_bytes == 0) return true;
  return is_enabled(qp, odp::kRemoteRead) &&
         context_.memory.check({reth.rkey, domain_of(qp), odp::kRemoteRead, qp.qpn}, reth.va,
                               reth.length_bytes) == odp::Outcome::done;
}

/// A requester that obeys max_rd_atomic starts a new READ only after an older one is answered in full. If all
/// entries are used, a duplicate READ is therefore among them, and its requester already has the response.
/// Drops the oldest duplicate.
void Responder::drop_answered_read(QueuePair& qp) {
  ResponderState& state = qp.responder;
  uint32_t position = 0;
  while (position != state.job_count && !state.job(position).duplicate) ++position;
  if (position == state.job_count) return;
  if (position == 0) stop_job_wait(qp);
  for (; position + 1 != state.job_count; ++position) state.job(position) = state.job(position + 1);
  --state.job_count;
}

void Responder::stop_job_wait(QueuePair& qp) {
  ResponderState& state = qp.responder;
  state.job_fault_wait = false;
  state.job_deadline_ns = kNever;
  state.job_floor = ++state.job_generation;
}

void Responder::fill_read(QueuePair& qp, QueuedResponse& job, const wire::Packet& packet,
                          const wire::Reth& reth, uint32_t packets, bool duplicate) {
  // Assigned field by field in place: copying a whole struct would wait for the stores that built it.
  job.kind = ResponseKind::read;
  job.duplicate = duplicate;
  job.first_psn = packet.bth.psn;
  job.packets = packets;
  job.sent_packets = 0;
  job.length_bytes = reth.length_bytes;
  job.rkey = reth.rkey;
  job.va = reth.va;
  job.msn = qp.responder.msn;
  job.original = 0;
  job.domain = domain_of(qp);
  context_.make_ready(qp);
}

void Responder::on_duplicate(QueuePair& qp, const wire::Packet& packet) {
  // If a READ of a previous connection were executed again, its response would acknowledge requests of the
  // present connection that were not executed.
  if (qp.responder.is_stale(packet.bth.psn)) return context_.count(DropReason::stale_request);
  context_.count(DropReason::duplicate);
  switch (packet.info->operation) {
    case wire::Operation::read_request:
      return read_again(qp, packet);
    case wire::Operation::compare_swap:
    case wire::Operation::fetch_add:
    case wire::Operation::atomic_write:
    case wire::Operation::flush:
      return answer_again(qp, packet);
    default:
      // Acknowledges the current state, whatever the duplicate was (IBA 9.7.5.1.2).
      qp.responder.ack_pending = true;
      context_.make_ready(qp);
  }
}

/// Handles a duplicate READ whose memory is no longer accessible. Its requester may have received the
/// response, so this QP stays alive. A NAK with the READ's own PSN informs a requester that misses the
/// response.
void Responder::refuse_duplicate(QueuePair& qp, wire::Psn psn) {
  ResponderState& state = qp.responder;
  context_.count(DropReason::access);
  context_.make_ready(qp);
  if (state.closing || state.nak_pending) return;
  const bool nak_was_sent = state.nak_sent;
  nak(qp, nak_syndrome(wire::NakCode::remote_access_error), psn);
  state.nak_sent = nak_was_sent;
}

/// Executes a READ again, from the PSN in the request (IBA 9.7.4.1.2.1).
void Responder::read_again(QueuePair& qp, const wire::Packet& packet) {
  ResponderState& state = qp.responder;
  const wire::Reth reth = packet.reth();
  const uint32_t packets = packets_of_read(qp, reth);
  const wire::Psn psn = packet.bth.psn;
  if (reth.length_bytes > wire::kMaxMessageBytes) return context_.count(DropReason::payload_rule);
  if (psn.plus(packets) > state.expected_psn) return context_.count(DropReason::payload_rule);
  if (!may_read(qp, reth)) return refuse_duplicate(qp, psn);
  if (QueuedResponse* const place = place_again(qp, psn, packets); place != nullptr)
    fill_read(qp, *place, packet, reth, packets, true);
}

/// Invalidates the window that a SEND names, after its data is in place. If the key names no window, returns
/// false: the receive fails, and a NAK reports a bad key to the peer (IBA 9.9.3.1.5, class J).
bool Responder::invalidate(QueuePair& qp, const wire::Packet& packet) {
  if (context_.memory.invalidate(packet.invalidate_rkey(), domain_of(qp), qp.qpn, true) == odp::Outcome::done)
    return true;
  CoreContext::blame(qp, status::FailureCause::bad_invalidate);
  fail_receive(context_, qp, CompletionStatus::remote_invalid_request);
  static_cast<void>(refuse_access(qp, {packet.invalidate_rkey(), domain_of(qp)}, 0, 0));
  return false;
}

void Responder::nak(QueuePair& qp, uint8_t syndrome, wire::Psn psn) {
  ResponderState& state = qp.responder;
  state.nak_sent = true;
  state.nak_pending = true;
  state.nak_syndrome = syndrome;
  state.nak_for_fault = false;
  state.nak_psn = psn;
  context_.make_ready(qp);
}

void Responder::nak_and_close(QueuePair& qp, wire::NakCode code, AsyncEvent event) {
  ResponderState& state = qp.responder;
  nak(qp, nak_syndrome(code), state.expected_psn);
  state.closing = true;
  state.closing_event = event;
  context_.parking.release_parked(qp);
  context_.parking.release_held(qp);
}

bool Responder::refuse_as_asked(QueuePair& qp, uint8_t syndrome) {
  if (qp.responder.parked_head != nullptr) return false;
  const auto close = [&](wire::NakCode code, AsyncEvent event) {
    CoreContext::blame(qp, status::FailureCause::by_scenario);
    nak_and_close(qp, code, event);
  };
  if (syndrome == nak_syndrome(wire::NakCode::invalid_request))
    close(wire::NakCode::invalid_request, AsyncEvent::qp_request_error);
  else if (syndrome == nak_syndrome(wire::NakCode::remote_access_error))
    close(wire::NakCode::remote_access_error, AsyncEvent::qp_access_error);
  else if (syndrome == nak_syndrome(wire::NakCode::remote_operational_error))
    close(wire::NakCode::remote_operational_error, AsyncEvent::qp_fatal);
  else
    nak(qp, syndrome, qp.responder.expected_psn);
  return true;
}

TimeNs Responder::next_deadline(const QueuePair& qp) {
  return std::min({qp.responder.park_deadline_ns, qp.responder.job_deadline_ns, qp.responder.held_deadline_ns,
                   qp.responder.stall_notification_ns});
}

}  // namespace faultline::transport
