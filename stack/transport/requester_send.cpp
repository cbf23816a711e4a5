// SPDX-License-Identifier: BSD-3-Clause
// The requester's sending half: WQEs to packets.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "stack/transport/requester.hpp"

namespace faultline::transport {

namespace {

using wire::Opcode;

/// A message's opcodes by place; both rows of a kind share first and middle.
struct MessageOpcodes {
  Opcode first, middle, last, only;
};

constexpr MessageOpcodes kSend{Opcode::rc_send_first, Opcode::rc_send_middle, Opcode::rc_send_last,
                               Opcode::rc_send_only};
constexpr MessageOpcodes kSendImm{Opcode::rc_send_first, Opcode::rc_send_middle, Opcode::rc_send_last_imm,
                                  Opcode::rc_send_only_imm};
constexpr MessageOpcodes kWrite{Opcode::rc_write_first, Opcode::rc_write_middle, Opcode::rc_write_last,
                                Opcode::rc_write_only};
constexpr MessageOpcodes kWriteImm{Opcode::rc_write_first, Opcode::rc_write_middle, Opcode::rc_write_last_imm,
                                   Opcode::rc_write_only_imm};

constexpr MessageOpcodes kSendInvalidate{Opcode::rc_send_first, Opcode::rc_send_middle,
                                         Opcode::rc_send_last_invalidate, Opcode::rc_send_only_invalidate};

Opcode opcode_of(SendOpcode kind, bool first, bool last) {
  const MessageOpcodes* row = nullptr;
  switch (kind) {
    case SendOpcode::send:
      row = &kSend;
      break;
    case SendOpcode::send_with_imm:
      row = &kSendImm;
      break;
    case SendOpcode::rdma_write:
      row = &kWrite;
      break;
    case SendOpcode::rdma_write_with_imm:
      row = &kWriteImm;
      break;
    case SendOpcode::send_with_inv:
      row = &kSendInvalidate;
      break;
    case SendOpcode::rdma_read:
      return Opcode::rc_read_request;
    case SendOpcode::atomic_cmp_and_swp:
      return Opcode::rc_compare_swap;
    case SendOpcode::atomic_fetch_and_add:
      return Opcode::rc_fetch_add;
    case SendOpcode::flush:
      return Opcode::rc_flush;
    case SendOpcode::atomic_write:
      return Opcode::rc_atomic_write;
    case SendOpcode::local_inv:
    case SendOpcode::bind_mw:
      assert(false && "start() puts these nowhere near the wire");
      return Opcode::rc_send_only;
  }
  if (first) return last ? row->only : row->first;
  return last ? row->last : row->middle;
}

bool is_supported(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::send:
    case SendOpcode::send_with_imm:
    case SendOpcode::rdma_write:
    case SendOpcode::rdma_write_with_imm:
    case SendOpcode::rdma_read:
    case SendOpcode::atomic_cmp_and_swp:
    case SendOpcode::atomic_fetch_and_add:
    case SendOpcode::local_inv:
    case SendOpcode::bind_mw:
    case SendOpcode::send_with_inv:
    case SendOpcode::flush:
    case SendOpcode::atomic_write:
      return true;
  }
  return false;
}

/// At the peer.
bool takes_receive(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::send:
    case SendOpcode::send_with_imm:
    case SendOpcode::send_with_inv:
    case SendOpcode::rdma_write_with_imm:
      return true;
    default:
      return false;
  }
}

bool is_local(SendOpcode opcode) {
  return opcode == SendOpcode::local_inv || opcode == SendOpcode::bind_mw;
}

/// Bytes that the packets of a request carry.
uint32_t bytes_to_send(const SendWqe& wqe) {
  return has_answer(wqe.opcode) && wqe.opcode != SendOpcode::atomic_write ? 0 : wqe.length_bytes;
}

constexpr uint32_t kMaxPsns = (1U << 30) - 1;  // a message has at most 2^31 bytes, a packet at least 256

/// PSNs that it takes: its packets', or its response's for a READ.
uint32_t psns_of(const SendWqe& wqe, uint32_t mtu_bytes) {
  if (has_answer(wqe.opcode) && wqe.opcode != SendOpcode::rdma_read) return 1;
  return wqe.length_bytes <= mtu_bytes ? 1 : (wqe.length_bytes + mtu_bytes - 1) / mtu_bytes;
}

}  // namespace

uint32_t Requester::ack_every(const QueuePair& qp) const {
  const uint32_t configured = context_.config.ack_every_packets;
  return qp.rate_control == nullptr ? configured : std::min(configured, qp.rate_control->ack_every_packets());
}

[[gnu::always_inline]] inline bool Requester::window_open(QueuePair& qp) const {
  return qp.send_psn().distance_from(qp.requester.unacked_psn) <
         static_cast<int32_t>(context_.config.window_packets);
}

/// The message at `current` needs a receive of which the peer has not told yet.
[[gnu::always_inline]] inline bool Requester::is_beyond_credits(const QueuePair& qp,
                                                                const SendWqe& wqe) const {
  const RequesterState& state = qp.requester;
  if (!state.credit_limited || !takes_receive(wqe.opcode)) return false;
  return (state.current == state.started ? state.last_ssn.next() : state.last_ssn) > state.limit_ssn;
}

/// Beyond the credits one packet at a time goes out, whose answer tells anew (IBA 9.7.7.2.5). What went out
/// before is not held up.
[[gnu::always_inline]] inline bool Requester::awaits_credits(QueuePair& qp, const SendWqe& wqe) const {
  const RequesterState& state = qp.requester;
  return state.unacked_psn != state.sent_psn && is_beyond_credits(qp, wqe) && qp.send_psn() >= state.sent_psn;
}

bool Requester::has_work(QueuePair& qp) const {
  const RequesterState& state = qp.requester;
  if (state.fault_wait || state.rnr_deadline_ns != kNever) return false;
  if (state.current == qp.send_ring.tail() || !window_open(qp)) return false;
  const SendWqe& wqe = *qp.send_ring.header_at(state.current);
  if (awaits_credits(qp, wqe)) return false;
  if (state.current != state.started) return true;
  if (qp.state_now() != QpState::rts) return false;
  if ((wqe.flags & kFence) != 0 && state.reads_outstanding != 0) return false;
  return !has_answer(wqe.opcode) || state.reads_outstanding < qp.attributes.max_rd_atomic;
}

void Requester::send(QueuePair& qp, uint32_t& budget_packets) {
  RequesterState& state = qp.requester;
  if (state.fault_wait || state.rnr_deadline_ns != kNever) return;
  const uint32_t tail = qp.send_ring.tail();
  while (budget_packets != 0) {
    skip_what_arrived(qp);
    if (state.current == tail || !window_open(qp)) return;
    SendWqe& wqe = *qp.send_ring.header_at(state.current);
    if (awaits_credits(qp, wqe)) return;
    if (state.current == state.started) {
      if (start(qp, wqe) != Step::sent) return;
      if (is_local(wqe.opcode)) continue;
    }
    if (!context_.may_send(qp) || send_packet(qp, wqe) != Step::sent) return;
    --budget_packets;
  }
}

/// Gives a new WQE its PSNs, if it may start.
Requester::Step Requester::start(QueuePair& qp, const SendWqe& wqe) {
  RequesterState& state = qp.requester;
  if (qp.state_now() != QpState::rts)
    return Step::blocked;  // SQD finishes only what has begun (IBA 10.3.1.4)
  if (!is_supported(wqe.opcode)) {
    return fail_in_order(qp, CompletionStatus::local_qp_operation);
  }
  const bool answered = has_answer(wqe.opcode);
  if (qp.type == QpType::uc && (answered || wqe.opcode == SendOpcode::send_with_inv))
    return fail_in_order(qp, CompletionStatus::local_qp_operation);
  if (answered && wqe.opcode != SendOpcode::rdma_read && wqe.opcode != SendOpcode::flush &&
      wqe.length_bytes != kAtomicBytes)
    return fail_in_order(qp, CompletionStatus::local_length);
  if ((wqe.flags & kFence) != 0 && state.reads_outstanding != 0) return Step::blocked;
  if (is_local(wqe.opcode)) return run_local(qp, wqe);
  if (answered) {
    if (state.reads_outstanding >= qp.attributes.max_rd_atomic) return Step::blocked;
    const Step step = bytes_to_send(wqe) == 0 ? prefault_destination(qp, wqe) : Step::sent;
    if (step != Step::sent) return step;
  }
  const uint32_t packets = psns_of(wqe, qp.mtu_bytes);
  qp.progress_at(state.current) = {state.next_psn, packets & kMaxPsns, answered, context_.tells(qp, wqe)};
  state.next_psn = state.next_psn.plus(packets);
  state.packet = 0;
  state.last_ssn = state.last_ssn.next();
  ++state.started;
  if (answered) ++state.reads_outstanding;
  return Step::sent;
}

/// The destination of a READ is faulted in ahead of the data, element by element, once.
Requester::Step Requester::prefault_destination(QueuePair& qp, const SendWqe& wqe) {
  RequesterState& state = qp.requester;
  if (state.fault_failed) return fail_in_order(qp, CompletionStatus::local_protection);
  const Sge* sges = qp.send_ring.sges_of(const_cast<SendWqe*>(&wqe));
  while (state.prefaulted_sges < wqe.sge_count) {
    const Sge& sge = sges[state.prefaulted_sges];
    const odp::Target target{sge.lkey, qp.domain, odp::kLocalWrite};
    switch (context_.memory.probe(target, sge.va, sge.length_bytes)) {
      case odp::Outcome::done:
        break;
      case odp::Outcome::violation:
        return fail_in_order(qp, CompletionStatus::local_protection);
      case odp::Outcome::miss: {
        const Step step = hold_for(qp, target, sge.va, sge.length_bytes);
        // Asked once: with less memory than the READ is long the early pages may be gone again when the last
        // have come.
        if (state.fault_wait) ++state.prefaulted_sges;
        return step;
      }
    }
    ++state.prefaulted_sges;
  }
  state.prefaulted_sges = 0;
  return Step::sent;
}

Requester::Step Requester::hold_for(QueuePair& qp, const odp::Target& target, uint64_t va,
                                    uint64_t length_bytes) {
  RequesterState& state = qp.requester;
  if (state.fault_failed) return fail_in_order(qp, CompletionStatus::local_protection);
  ++context_.counters.faults_requester;
  ++state.fault_generation;
  const uint64_t waiter = CoreContext::waiter_of(qp, FaultRole::requester, state.fault_generation);
  if (context_.request_fault(target, va, length_bytes, waiter)) {
    state.fault_wait = true;
    // The wait is our own: the peer's silence meanwhile means nothing.
    state.ack_deadline_ns = qp.recovery.probe_deadline_ns = kNever;
  } else {
    context_.make_ready(qp);
  }
  return Step::blocked;
}

Requester::Step Requester::fill_payload(QueuePair& qp, SendWqe& wqe, uint32_t offset, std::span<uint8_t> to,
                                        uint32_t* crc) {
  if (to.empty()) return Step::sent;
  if ((wqe.flags & kInline) != 0) {
    assert(crc == nullptr);
    std::memcpy(to.data(), qp.send_ring.inline_of(&wqe) + offset, to.size());
    return Step::sent;
  }
  const std::span<const Sge> sges(qp.send_ring.sges_of(&wqe), wqe.sge_count);
  SgeSpan stop;
  switch (crc == nullptr ? gather(context_.memory, qp.domain, sges, offset, to, stop)
                         : gather_with_crc(context_.memory, qp.domain, sges, offset, to, stop, *crc)) {
    case odp::Outcome::done:
      return Step::sent;
    case odp::Outcome::miss:
      return hold_for(qp, {sges[stop.index].lkey, qp.domain, odp::kLocalRead}, stop.va, stop.left_bytes);
    case odp::Outcome::violation:
      break;
  }
  return fail_in_order(qp, CompletionStatus::local_protection);
}

Requester::Step Requester::fail_in_order(QueuePair& qp, CompletionStatus status) {
  // Those before it are still under way and complete first (IBA 10.8.3.1); their progress makes the QP ready
  // again.
  if (qp.send_ring.head() != qp.requester.current) return Step::blocked;
  fail(qp, status);
  return Step::failed;
}

Requester::Step Requester::send_packet(QueuePair& qp, SendWqe& wqe) {
  RequesterState& state = qp.requester;
  const SendProgress& progress = qp.progress_at(state.current);
  const bool read = wqe.opcode == SendOpcode::rdma_read;
  const bool answered = has_answer(wqe.opcode);
  const uint32_t message_bytes = bytes_to_send(wqe);
  // It carries no bytes that would miss again: its destination's failed page is known here.
  if (answered && message_bytes == 0 && state.fault_failed)
    return fail_in_order(qp, CompletionStatus::local_protection);
  const uint32_t offset = state.packet * qp.mtu_bytes;
  const uint32_t payload_bytes = message_bytes == 0 ? 0 : std::min(qp.mtu_bytes, message_bytes - offset);
  const bool last = answered || state.packet + 1 == progress.packets;

  TxFrame* frame = context_.tx.next();
  if (frame == nullptr) {
    context_.make_ready(qp);
    return Step::blocked;
  }
  const wire::Psn psn = progress.first_psn.plus(state.packet);
  wire::PacketFields& fields = fields_;
  fields.bth.opcode = qp.in_service(opcode_of(wqe.opcode, state.packet == 0, last));
  fields.bth.solicited = last && (wqe.flags & kSolicited) != 0;
  fields.bth.destination_qpn = qp.attributes.destination_qpn;
  fields.bth.psn = psn;
  const bool reliable = qp.type != QpType::uc;
  fields.bth.selective_ack = reliable && context_.config.selective_ack;
  const bool again = psn < state.sent_psn;
  fields.bth.ack_request =
      reliable &&
      (last || is_beyond_credits(qp, wqe) || (again && psn.next() == qp.recovery.lost_end) ||
       (state.packet + 1) % ack_every(qp) == 0 ||
       psn.plus(1).distance_from(state.unacked_psn) >= static_cast<int32_t>(context_.config.window_packets));
  fields.reth = {wqe.remote_va + (read ? offset : 0), wqe.rkey, wqe.length_bytes - (read ? offset : 0)};
  fields.immediate = fields.invalidate_rkey = wqe.immediate_or_rkey;
  if (have_operands(wqe.opcode)) fields.atomic_eth = {wqe.remote_va, wqe.rkey, wqe.swap_or_add, wqe.compare};
  if (answered) {
    fields.feth = {wqe.flush_placement, wqe.flush_selectivity};
  }
  fields.xrc_srq_number = wqe.srq_number;
  fields.ipv4_identification = qp.ipv4_identification;

  const std::span<uint8_t> bytes(frame->data, frame->capacity_bytes);
  uint8_t* payload = qp.frame.write_headers(bytes, fields, payload_bytes);
  assert(payload != nullptr && "a transmit buffer holds a frame of the path MTU");
  const bool crc_in_copy = qp.frame.wants_crc_in_copy(payload_bytes) && (wqe.flags & kInline) == 0;
  uint32_t crc = crc_in_copy ? qp.frame.icrc_of_headers(bytes.data(), payload) : 0;
  const Step step = fill_payload(qp, wqe, offset, {payload, payload_bytes}, crc_in_copy ? &crc : nullptr);
  if (step != Step::sent) return step;
  state.fault_failed = false;
  const bool as_rxe = context_.config.rxe_flush_icrc && wqe.opcode == SendOpcode::flush;
  const uint32_t frame_bytes =
      crc_in_copy ? qp.frame.seal_with_crc(bytes, fields.bth.opcode, payload_bytes, crc)
                  : qp.frame.seal(bytes, fields.bth.opcode, payload_bytes,
                                  as_rxe ? wire::IcrcForm::rxe_flush : wire::IcrcForm::specified);
  context_.tx.commit(frame_bytes, qp.loopback);
  context_.note_sent(qp, frame_bytes);
  ++qp.ipv4_identification;

  const uint32_t psns = read ? progress.packets - state.packet : 1;
  const wire::Psn behind = psn.plus(psns);
  if (behind > state.sent_psn) state.sent_psn = behind;
  if (qp.type == QpType::uc) {
    finish_unreliable(qp, psn.plus(psns));
    return Step::sent;
  }
  if (again)
    note_resent(qp, psn);
  else if (fields.bth.ack_request)
    start_timing(qp, psn);
  state.packet += psns;
  if (state.packet == progress.packets) {
    ++state.current;
    state.packet = 0;
  }
  if (state.ack_deadline_ns == kNever) arm_ack_timer(qp);
  return Step::sent;
}

/// Nobody acknowledges a UC packet: a message is done when its last packet is on its way (IBA 9.8.2.2).
void Requester::finish_unreliable(QueuePair& qp, wire::Psn behind) {
  RequesterState& state = qp.requester;
  state.unacked_psn = state.sent_psn = behind;
  if (++state.packet != qp.progress_at(state.current).packets) return;
  state.packet = 0;
  ++state.current;
  complete_head(qp);
  complete_local(qp);
}

/// A send queue in error: what is posted is flushed (IBA 10.3.1.6).
void Requester::flush_sends(QueuePair& qp) {
  while (qp.send_ring.head() != qp.send_ring.tail())
    context_.complete_send(qp, CompletionStatus::work_request_flushed);
  RequesterState& state = qp.requester;
  state.current = state.started = qp.send_ring.head();
  state.packet = 0;
  state.next_psn = state.unacked_psn = state.sent_psn;
}

void Requester::on_fault_resolved(QueuePair& qp, uint32_t generation, odp::Outcome outcome) {
  RequesterState& state = qp.requester;
  if (!state.fault_wait || generation != state.fault_generation) return;
  state.fault_wait = false;
  if (state.unacked_psn != state.sent_psn && qp.type != QpType::uc) arm_ack_timer(qp);
  state.fault_failed = outcome != odp::Outcome::done;
  context_.make_ready(qp);
}

}  // namespace faultline::transport
