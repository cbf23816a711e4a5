// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/ud/datagram.hpp"

#include <array>
#include <cstring>
#include <utility>

#include "stack/transport/context/emit.hpp"

namespace faultline::transport {
namespace {

/// Compares the bytes of two paths, in words: member by member costs five times as much. Paths that differ in
/// an unused byte alone count as different, which costs a new template.
[[gnu::always_inline]] inline bool have_same_bytes(const wire::PathHeader& a, const wire::PathHeader& b) {
  static_assert(sizeof a % sizeof(uint64_t) == 0);
  const auto word = [](const wire::PathHeader& path, size_t number) {
    uint64_t value;
    std::memcpy(&value, reinterpret_cast<const uint8_t*>(&path) + number * sizeof value, sizeof value);
    return value;
  };
  const auto differing_bits = [&]<size_t... kNumbers>(std::index_sequence<kNumbers...>) {
    return ((word(a, kNumbers) ^ word(b, kNumbers)) | ...);
  };
  return differing_bits(std::make_index_sequence<sizeof a / sizeof(uint64_t)>{}) == 0;
}

/// Returns the template of a datagram's path. Successive datagrams mostly have the same path, and a template
/// costs more instructions than the rest of the headers.
const wire::FrameTemplate& template_of(QueuePair& qp, const wire::PathHeader& path, uint8_t checksums) {
  if (qp.frame.is_empty() || !have_same_bytes(qp.datagram_path, path)) [[unlikely]] {
    qp.frame = wire::FrameTemplate(path, checksums);
    qp.datagram_path = path;
  }
  return qp.frame;
}

[[gnu::always_inline]] inline bool may_send(const QueuePair& qp) {
  return qp.state_now() == QpState::rts && !qp.requester.fault_wait &&
         qp.send_ring.head() != qp.send_ring.tail();
}

/// Copies the GRH and the payload to a receive.
odp::Outcome scatter_with_grh(odp::MemoryAccess& memory, const Receive& receive, const wire::Packet& packet,
                              SgeSpan& stop) {
  // An access costs more than a short payload's copy to the GRH's end.
  constexpr size_t kPieceBytes = 256;
  std::array<uint8_t, kPieceBytes> piece;  // not initialised
  packet.write_grh(std::span(piece).first<wire::kGrhBytes>());
  std::span<const uint8_t> payload = packet.payload();
  size_t piece_bytes = wire::kGrhBytes;
  if (payload.size() <= piece.size() - piece_bytes) {
    std::memcpy(piece.data() + piece_bytes, payload.data(), payload.size());
    piece_bytes += payload.size();
    payload = {};
  }
  const odp::Outcome outcome =
      scatter(memory, receive.domain, receive.sges, 0, std::span(piece).first(piece_bytes), stop);
  if (outcome != odp::Outcome::done || payload.empty()) return outcome;
  return scatter(memory, receive.domain, receive.sges, wire::kGrhBytes, payload, stop);
}

}  // namespace

/// Completes the sent datagram at the ring's head. Most of a chain are not signaled.
[[gnu::always_inline]] inline void Datagram::complete(QueuePair& qp, const SendWqe& wqe) {
  if (CoreContext::is_signaled(qp, wqe) || qp.is_counted)
    return context_.complete_send(qp, CompletionStatus::success);
  ++context_.counters.messages_sent;
  qp.send_ring.retire_to(qp.send_ring.head() + 1);
}

bool Datagram::has_work(QueuePair& qp) const {
  return may_send(qp);
}

void Datagram::send(QueuePair& qp, uint32_t& budget_packets) {
  while (budget_packets != 0 && may_send(qp)) {
    if (!send_one(qp)) return;
    --budget_packets;
  }
}

/// A failed UD send moves the QP to SQE and flushes the later sends (IBA 10.3.1.6).
void Datagram::fail_head(QueuePair& qp, CompletionStatus status) {
  qp.requester.fault_failed = false;
  context_.report(qp, status);
  context_.complete_send(qp, status);
  if (qp.lost_completion) return context_.enter_error(qp);
  qp.state.store(QpState::sqe, std::memory_order_relaxed);
  while (qp.send_ring.head() != qp.send_ring.tail())
    context_.complete_send(qp, CompletionStatus::work_request_flushed);
}

/// Handles a send whose memory is absent or not accessible. Returns true if its page is resident now.
bool Datagram::hold_send(QueuePair& qp, odp::Outcome outcome, odp::Key lkey, const SgeSpan& stop) {
  RequesterState& state = qp.requester;
  if (outcome == odp::Outcome::violation || state.fault_failed) {
    fail_head(qp, CompletionStatus::local_protection);
    return false;
  }
  ++context_.counters.faults_requester;
  const FaultWaiter waiter{qp.qpn, FaultRole::requester, ++state.fault_generation};
  const FaultAnswer answer =
      context_.request_fault(qp, {lkey, qp.domain, odp::kLocalRead}, stop.va, stop.left_bytes, waiter);
  state.fault_wait = answer == FaultAnswer::queued;
  if (answer == FaultAnswer::full) context_.make_ready(qp);
  return answer == FaultAnswer::served;
}

/// Sends the datagram at the ring's head. Returns false if it has to wait. Also returns true if nothing was
/// sent, since a page had to be made resident: call again.
bool Datagram::send_one(QueuePair& qp) {
  RequesterState& state = qp.requester;
  SendWqe& wqe = *qp.send_ring.header_at(qp.send_ring.head());
  const bool immediate = wqe.opcode == SendOpcode::send_with_imm;
  if (!immediate && wqe.opcode != SendOpcode::send) {
    if (wqe.opcode == SendOpcode::made_to_fail) {
      CoreContext::blame(qp, status::FailureCause::by_scenario);
      fail_head(qp, static_cast<CompletionStatus>(wqe.rkey));
      return false;
    }
    fail_head(qp, CompletionStatus::local_qp_operation);
    return false;
  }
  if (wqe.length_bytes > context_.config.max_path_mtu_bytes) {
    fail_head(qp, CompletionStatus::local_length);
    return false;
  }
  TxFrame* const frame = next_frame(context_, qp);
  if (frame == nullptr) return false;
  const AddressVector& av = qp.send_ring.av_of(&wqe);
  const wire::FrameTemplate& header = template_of(qp, av.path, context_.config.wire_checksums);
  wire::PacketFields& fields = fields_;
  fields.bth = wire::make_bth(immediate ? wire::Opcode::ud_send_only_imm : wire::Opcode::ud_send_only,
                              (wqe.flags & kSolicited) != 0, wqe.ud_qpn, state.next_psn, 0);
  fields.deth = {wqe.ud_qkey, qp.qpn};
  fields.immediate = wqe.immediate_or_rkey;
  fields.ipv4_identification = static_cast<uint16_t>(qp.tx_packets);
  const std::span<const Sge> sges(qp.send_ring.sges_of(&wqe), wqe.sge_count);
  SgeSpan stop;
  odp::Outcome outcome = odp::Outcome::done;
  const auto fill = [&](std::span<uint8_t> to, uint32_t * crc) __attribute__((always_inline)) {
    if ((wqe.flags & kInline) != 0)
      std::memcpy(to.data(), qp.send_ring.inline_of(&wqe), to.size());
    else if (!to.empty())
      outcome = gather(context_.memory, qp.domain, sges, 0, to, stop, crc);
    return outcome == odp::Outcome::done;
  };
  const FrameForm form{.loopback = av.loopback, .crc_in_copy = (wqe.flags & kInline) == 0};
  static_cast<void>(emit(context_, *frame, header, fields, wqe.length_bytes, form, fill));
  if (outcome != odp::Outcome::done) return hold_send(qp, outcome, sges[stop.index].lkey, stop);
  state.fault_failed = false;
  if (qp.blocks_own_multicast && wqe.ud_qpn == wire::kMulticastQpn) qp.multicast_source = av.path.source_gid;
  ++qp.tx_packets;
  note_recorded(context_, qp, fields, wqe.length_bytes);
  state.next_psn = state.next_psn.next();
  complete(qp, wqe);
  return true;
}

void Datagram::on_send_resolved(QueuePair& qp, uint32_t generation, odp::Outcome outcome) {
  RequesterState& state = qp.requester;
  if (!state.fault_wait || generation != state.fault_generation) return;
  state.fault_wait = false;
  state.fault_failed = outcome != odp::Outcome::done;
  context_.make_ready(qp);
}

bool Datagram::on_packet(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame) {
  // The Q_Key is the same in every packet of a service, so it is checked before any other work (IBA 10.2.5).
  if (packet.deth().qkey != qp.attributes.qkey) {
    context_.count(DropReason::qkey);
    return false;
  }
  if (qp.responder.parked_head == nullptr && deliver(qp, packet) == Execution::done) return false;
  const bool first = qp.responder.parked_head == nullptr;
  if (!context_.parking.park(qp, frame)) {
    context_.count(DropReason::park_full);
    return false;
  }
  if (first) {
    qp.responder.park_deadline_ns = context_.now_ns + context_.config.unreliable_deadline_ns;
    context_.arm(qp, qp.responder.park_deadline_ns);
  }
  return true;
}

bool Datagram::on_multicast(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame, bool may_keep) {
  if (may_keep) return on_packet(qp, packet, frame);
  deliver_copy(qp, packet);
  return false;
}

void Datagram::deliver_copy(QueuePair& qp, const wire::Packet& packet) {
  if (packet.deth().qkey != qp.attributes.qkey) return context_.count(DropReason::qkey);
  // Would have to wait for the parked packets.
  if (qp.responder.parked_head != nullptr) return context_.count(DropReason::park_full);
  if (deliver(qp, packet) == Execution::miss) {
    qp.responder.parked_retry = false;
    context_.count(DropReason::park_full);
  }
}

Execution Datagram::deliver(QueuePair& qp, const wire::Packet& packet) {
  for (unsigned tries = 0; tries != kMostRetriesInPlace; ++tries)
    if (const Execution result = deliver_once(qp, packet); result != Execution::retry) return result;
  // The pages were taken away again and again: the packet is parked until the next turn.
  context_.retry_parked_later(qp);
  return Execution::miss;
}

/// A packet that does not fit is dropped and the QP continues (CVE-2024-40992).
Execution Datagram::deliver_once(QueuePair& qp, const wire::Packet& packet) {
  ResponderState& state = qp.responder;
  const Receive* const next = CoreContext::peek_receive(qp, qp.srq);
  if (next == nullptr) {
    context_.count(DropReason::no_receive_wqe);
    return Execution::done;
  }
  const uint32_t total = wire::kGrhBytes + packet.payload_bytes;
  if (total > next->length_bytes) {
    context_.count(DropReason::ud_too_long);
    return Execution::done;
  }
  // The receive is taken now, even if it must wait for a page: no other QP of a shared queue may use it.
  context_.take_peeked(qp);
  const Receive& receive = qp.receive;
  SgeSpan stop;
  const odp::Outcome outcome = scatter_with_grh(context_.memory, receive, packet, stop);
  if (outcome == odp::Outcome::miss) {
    ++context_.counters.faults_responder;
    const FaultWaiter waiter{qp.qpn, FaultRole::parked, ++state.park_generation};
    const FaultAnswer answer =
        context_.request_fault(qp, {receive.sges[stop.index].lkey, receive.domain, odp::kLocalWrite}, stop.va,
                               stop.left_bytes, waiter);
    if (answer == FaultAnswer::served) return Execution::retry;
    state.parked_retry = answer == FaultAnswer::full;
    if (state.parked_retry) context_.make_ready(qp);
    return Execution::miss;
  }
  if (outcome == odp::Outcome::violation) {
    fail(qp, refuse_receive(context_, qp));
    return Execution::done;
  }
  Completion completion;
  completion.opcode = CompletionOpcode::recv;
  completion.byte_length = total;
  completion.source_qpn = packet.deth().source_qpn;
  completion.flags = kWithGrh;
  completion.service_level = (packet.ipv6 ? kDatagramOverIpv6 : kDatagramOverIpv4) & 0xf;
  completion.solicited = packet.bth.solicited ? 1 : 0;
  if (packet.info->has(wire::kImmDt)) {
    completion.flags |= kWithImm;
    completion.immediate_or_rkey = packet.immediate();
  }
  context_.complete_receive(qp, completion);
  ++context_.counters.messages_received;
  return Execution::done;
}

/// The QP fails, since its receive is not accessible.
void Datagram::fail(QueuePair& qp, CompletionStatus status) {
  context_.report(qp, status);
  context_.enter_error(qp);
  context_.raise(qp, AsyncEvent::qp_fatal);
}

void Datagram::drop_parked_head(QueuePair& qp) {
  RxFrame frame = qp.responder.parked_head->frame;
  context_.parking.unpark_head(qp);
  context_.port.release({&frame, 1});
}

void Datagram::retry_parked(QueuePair& qp) {
  ResponderState& state = qp.responder;
  state.parked_retry = false;
  while (state.parked_head != nullptr) {
    const RxFrame frame = state.parked_head->frame;
    if (deliver(qp, parse_again(frame)) == Execution::miss) {
      state.park_deadline_ns = context_.now_ns + context_.config.unreliable_deadline_ns;
      context_.arm(qp, state.park_deadline_ns);
      return;
    }
    if (state.parked_head == nullptr) return;  // the delivery failed the QP, which released them
    drop_parked_head(qp);
  }
  state.park_deadline_ns = kNever;
}

void Datagram::on_parked_resolved(QueuePair& qp, uint32_t generation, odp::Outcome outcome) {
  ResponderState& state = qp.responder;
  if (state.parked_head == nullptr || generation != state.park_generation) return;
  if (outcome == odp::Outcome::violation) {
    CoreContext::blame_page(qp, status::FailureCause::receive_memory);
    if (qp.receive_taken) fail_receive(context_, qp, CompletionStatus::local_protection);
    return fail(qp, CompletionStatus::local_protection);
  }
  context_.retry_parked_later(qp);
}

/// Datagrams have no acknowledgement: one that waited too long is dropped, as on a congested link.
void Datagram::on_timer(QueuePair& qp) {
  if (qp.responder.park_deadline_ns <= context_.now_ns) context_.parking.release_parked(qp);
}

}  // namespace faultline::transport
