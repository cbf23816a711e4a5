// SPDX-License-Identifier: BSD-3-Clause
// The requester's sending half: turns WQEs into packets.
#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "stack/transport/context/emit.hpp"
#include "stack/transport/qp/snapshot.hpp"
#include "stack/transport/rc/requester.hpp"

namespace faultline::transport {

using wire::Opcode;

namespace {

enum Trait : uint8_t {
  kSupported = 1U << 0,
  kAnswered = 1U << 1,      ///< has_answer
  kTakesReceive = 1U << 2,  ///< consumes a receive at the peer
  kLocal = 1U << 3,         ///< has no packets
  kCarriesNothing = 1U << 4,
  kHasOperands = 1U << 5,
};

}  // namespace

/// Properties of an operation that the sending half uses.
struct SendOperation {
  std::array<Opcode, 4> by_place{};  ///< by_place[place_of(first, last)]
  uint8_t traits = 0;

  [[nodiscard]] bool is(unsigned any_of) const { return (traits & any_of) != 0; }
  /// True unless the operation is packets with a plain acknowledgement.
  [[nodiscard]] bool is_special() const { return (traits & (kSupported | kAnswered | kLocal)) != kSupported; }
  /// Payload bytes in the packets of a request.
  [[nodiscard]] uint32_t bytes_to_send(const SendWqe& wqe) const {
    return is(kCarriesNothing) ? 0 : wqe.length_bytes;
  }
  [[nodiscard]] static constexpr size_t place_of(bool first, bool last) {
    return size_t{first} << 1 | size_t{last};
  }
};

namespace {

using SendOperations = std::array<SendOperation, 16>;

constexpr SendOperations make_operations() {
  SendOperations operations{};
  const auto set = [&operations](SendOpcode opcode, Opcode first, Opcode middle, Opcode last, Opcode only,
                                 unsigned traits) {
    SendOperation& row = operations[static_cast<size_t>(opcode)];
    row.by_place[SendOperation::place_of(true, false)] = first;
    row.by_place[SendOperation::place_of(false, false)] = middle;
    row.by_place[SendOperation::place_of(false, true)] = last;
    row.by_place[SendOperation::place_of(true, true)] = only;
    row.traits = static_cast<uint8_t>(traits | kSupported);
  };
  const auto set_one = [&set](SendOpcode opcode, Opcode only, unsigned traits) {
    set(opcode, only, only, only, only, traits);
  };
  using enum Opcode;
  set(SendOpcode::send, rc_send_first, rc_send_middle, rc_send_last, rc_send_only, kTakesReceive);
  set(SendOpcode::send_with_imm, rc_send_first, rc_send_middle, rc_send_last_imm, rc_send_only_imm,
      kTakesReceive);
  set(SendOpcode::send_with_inv, rc_send_first, rc_send_middle, rc_send_last_invalidate,
      rc_send_only_invalidate, kTakesReceive);
  set(SendOpcode::rdma_write, rc_write_first, rc_write_middle, rc_write_last, rc_write_only, 0);
  set(SendOpcode::rdma_write_with_imm, rc_write_first, rc_write_middle, rc_write_last_imm, rc_write_only_imm,
      kTakesReceive);
  set_one(SendOpcode::rdma_read, rc_read_request, kAnswered | kCarriesNothing);
  set_one(SendOpcode::atomic_cmp_and_swp, rc_compare_swap, kAnswered | kCarriesNothing | kHasOperands);
  set_one(SendOpcode::atomic_fetch_and_add, rc_fetch_add, kAnswered | kCarriesNothing | kHasOperands);
  set_one(SendOpcode::flush, rc_flush, kAnswered | kCarriesNothing);
  set_one(SendOpcode::atomic_write, rc_atomic_write, kAnswered);
  set_one(SendOpcode::local_inv, rc_send_only, kLocal);
  set_one(SendOpcode::bind_mw, rc_send_only, kLocal);
  return operations;
}
constexpr SendOperations kOperations = make_operations();
constexpr SendOperation kNoOperation{};

const SendOperation& operation_of(SendOpcode opcode) {
  const auto number = static_cast<size_t>(opcode);
  return number < kOperations.size() ? kOperations[number] : kNoOperation;
}

constexpr uint32_t kMaxPsns = (1U << 30) - 1;  // a message has at most 2^31 bytes, a packet at least 256

/// Number of PSNs of a WQE: its request packets, or the response packets of a READ.
uint32_t psns_of(const SendWqe& wqe, uint32_t mtu_bytes) {
  if (wqe.length_bytes <= mtu_bytes) return 1;
  if (has_answer(wqe.opcode) && wqe.opcode != SendOpcode::rdma_read) return 1;
  return wire::packets_of(wqe.length_bytes, mtu_bytes);
}

}  // namespace

/// Returns true if the packet before `behind`, which is not the last of its message, requests an
/// acknowledgement: `sent_packets` of the message are sent with it.
[[gnu::always_inline]] inline bool Requester::asks_inside_message(const QueuePair& qp, wire::Psn behind,
                                                                  uint32_t sent_packets) const {
  uint32_t every = context_.config.ack_every_packets;
  int32_t window = window_packets(qp);
  if (qp.rate_control != nullptr) [[unlikely]] {
    every = std::min(every, qp.rate_control->ack_every_packets());
    window = window_packets_of(qp, context_.config);
  }
  return sent_packets % every == 0 || behind.distance_from(qp.requester.unacked_psn) >= window;
}

/// True if rate control allows no further packet in flight. Without a requested acknowledgement in flight it
/// always allows one: the window may have shrunk below what was sent, and nothing would open it.
bool Requester::flight_full(QueuePair& qp) const {
  const wire::Psn unacked = qp.requester.unacked_psn;
  return qp.send_psn().distance_from(unacked) >= window_packets_of(qp, context_.config) &&
         qp.recovery.asked_psn >= unacked;
}

[[gnu::always_inline]] inline bool Requester::window_open(QueuePair& qp) const {
  return qp.send_psn().distance_from(qp.requester.unacked_psn) < window_packets(qp);
}

/// True if the message at `current` needs a receive for which the peer has not sent credits.
[[gnu::always_inline]] inline bool Requester::is_beyond_credits(const QueuePair& qp,
                                                                const SendOperation& operation) const {
  const RequesterState& state = qp.requester;
  if (!state.credit_limited || !operation.is(kTakesReceive)) return false;
  return (state.current == state.started ? state.last_ssn.next() : state.last_ssn) > state.limit_ssn;
}

/// Without credits, one packet at a time is sent; its response brings new credits (IBA 9.7.7.2.5).
/// Retransmissions are not limited.
[[gnu::always_inline]] inline bool Requester::awaits_credits(QueuePair& qp,
                                                             const SendOperation& operation) const {
  const RequesterState& state = qp.requester;
  return state.unacked_psn != state.sent_psn && is_beyond_credits(qp, operation) &&
         qp.send_psn() >= state.sent_psn;
}

bool Requester::has_work(QueuePair& qp) const {
  const RequesterState& state = qp.requester;
  if (state.fault_wait || state.rnr_deadline_ns != kNever) return false;
  if (state.current == qp.send_ring.tail() || !window_open(qp)) return false;
  if (qp.rate_control != nullptr && flight_full(qp)) return false;
  const SendWqe& wqe = *qp.send_ring.header_at(state.current);
  if (awaits_credits(qp, operation_of(wqe.opcode))) return false;
  if (state.current != state.started) return true;
  if (qp.state_now() != QpState::rts) return false;
  if ((wqe.flags & kFence) != 0 && state.reads_outstanding != 0) return false;
  return !has_answer(wqe.opcode) || state.reads_outstanding < qp.attributes.max_rd_atomic;
}

/// Faults in the destination of a READ before the data arrives, element by element, once.
[[gnu::always_inline]] inline Requester::Step Requester::prefault_destination(QueuePair& qp,
                                                                              const SendWqe& wqe) {
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
        // Requested once: if memory is smaller than the READ, early pages may be evicted before the last
        // arrive.
        if (state.fault_wait || step == Step::retry) ++state.prefaulted_sges;
        return step;
      }
    }
    ++state.prefaulted_sges;
  }
  state.prefaulted_sges = 0;
  return Step::sent;
}

/// Checks whether a WQE other than a plain SEND or WRITE may start. Executes a local operation at once.
Requester::Step Requester::prepare(QueuePair& qp, const SendWqe& wqe, const SendOperation& operation) {
  const RequesterState& state = qp.requester;
  const bool unfenced_read = wqe.opcode == SendOpcode::rdma_read && (wqe.flags & kFence) == 0 &&
                             qp.protocol() != Protocol::unreliable;
  if (!unfenced_read) {
    if (wqe.opcode == SendOpcode::made_to_fail) return make_fail(qp, wqe);
    if (!operation.is(kSupported)) return fail_in_order(qp, CompletionStatus::local_qp_operation);
    const bool answered = operation.is(kAnswered);
    if (qp.protocol() == Protocol::unreliable && (answered || wqe.opcode == SendOpcode::send_with_inv))
      return fail_in_order(qp, CompletionStatus::local_qp_operation);
    if (answered && wqe.opcode != SendOpcode::rdma_read && wqe.opcode != SendOpcode::flush &&
        wqe.length_bytes != kAtomicBytes)
      return fail_in_order(qp, CompletionStatus::local_length);
    if ((wqe.flags & kFence) != 0 && state.reads_outstanding != 0) return Step::blocked;
    if (operation.is(kLocal)) return run_local(qp, wqe);
    if (!answered) return Step::sent;
  }
  if (state.reads_outstanding >= qp.attributes.max_rd_atomic) return Step::blocked;
  return operation.bytes_to_send(wqe) == 0 ? prefault_destination(qp, wqe) : Step::sent;
}

/// Assigns PSNs to a new WQE, if it may start.
[[gnu::always_inline]] inline Requester::Step Requester::start(QueuePair& qp, const SendWqe& wqe,
                                                               const SendOperation& operation) {
  RequesterState& state = qp.requester;
  if (qp.state_now() != QpState::rts) return Step::blocked;  // SQD completes only started WQEs (IBA 10.3.1.4)
  const bool answered = operation.is(kAnswered);
  if (operation.is_special() || (wqe.flags & kFence) != 0 || qp.protocol() == Protocol::unreliable) {
    const Step step = prepare(qp, wqe, operation);
    if (step != Step::sent || operation.is(kLocal)) return step;
  }
  const uint32_t packets = psns_of(wqe, qp.mtu_bytes);
  qp.progress_at(state.current) = {state.next_psn, packets & kMaxPsns, answered,
                                   context_.is_signaled(qp, wqe)};
  state.next_psn = state.next_psn.plus(packets);
  state.packet = 0;
  state.last_ssn = state.last_ssn.next();
  ++state.started;
  if (answered) ++state.reads_outstanding;
  return Step::sent;
}

[[gnu::noinline]] Requester::Step Requester::hold_for(QueuePair& qp, const odp::Target& target, uint64_t va,
                                                      uint64_t length_bytes) {
  RequesterState& state = qp.requester;
  if (state.fault_failed) return fail_in_order(qp, CompletionStatus::local_protection);
  ++context_.counters.faults_requester;
  ++state.fault_generation;
  const FaultWaiter waiter{qp.qpn, FaultRole::requester, state.fault_generation};
  switch (context_.request_fault(qp, target, va, length_bytes, waiter)) {
    case FaultAnswer::served:
      return Step::retry;
    case FaultAnswer::queued:
      state.fault_wait = true;
      // This end causes the wait, so the peer's silence means nothing.
      state.ack_deadline_ns = qp.recovery.probe_deadline_ns = kNever;
      break;
    case FaultAnswer::full:
      context_.make_ready(qp);
      break;
  }
  return Step::blocked;
}

[[gnu::always_inline]] inline Requester::Step Requester::fill_payload(QueuePair& qp, SendWqe& wqe,
                                                                      uint32_t offset, std::span<uint8_t> to,
                                                                      uint32_t* crc) {
  if (to.empty()) return Step::sent;
  if ((wqe.flags & kInline) != 0) {
    assert(crc == nullptr);
    std::memcpy(to.data(), qp.send_ring.inline_of(&wqe) + offset, to.size());
    return Step::sent;
  }
  const std::span<const Sge> sges(qp.send_ring.sges_of(&wqe), wqe.sge_count);
  SgeSpan stop;
  switch (gather(context_.memory, qp.domain, sges, offset, to, stop, crc)) {
    case odp::Outcome::done:
      return Step::sent;
    case odp::Outcome::miss:
      return hold_for(qp, {sges[stop.index].lkey, qp.domain, odp::kLocalRead}, stop.va, stop.left_bytes);
    case odp::Outcome::violation:
      break;
  }
  return fail_in_order(qp, CompletionStatus::local_protection);
}

/// Fails as a scenario asks for, once the earlier requests have completed.
Requester::Step Requester::make_fail(QueuePair& qp, const SendWqe& wqe) {
  if (qp.send_ring.head() == qp.requester.current) CoreContext::blame(qp, status::FailureCause::by_scenario);
  return fail_in_order(qp, static_cast<CompletionStatus>(wqe.rkey));
}

Requester::Step Requester::fail_in_order(QueuePair& qp, CompletionStatus status) {
  // Earlier WQEs are in progress and complete first (IBA 10.8.3.1); their progress makes the QP ready again.
  if (qp.send_ring.head() != qp.requester.current) return Step::blocked;
  fail(qp, status);
  return Step::failed;
}

/// `kWhole`: the only packet of a request, transmitted for the first time; the usual case.
template <bool kWhole>
[[gnu::always_inline]] inline Requester::Step Requester::send_packet(QueuePair& qp, SendWqe& wqe,
                                                                     const SendOperation& operation) {
  RequesterState& state = qp.requester;
  const SendProgress& progress = qp.progress_at(state.current);
  const uint32_t number = kWhole ? 0 : state.packet;
  const bool read = wqe.opcode == SendOpcode::rdma_read;
  const bool answered = operation.is(kAnswered);
  const uint32_t message_bytes = operation.bytes_to_send(wqe);
  // Without payload there is no copy that would miss again, so the failed page of the destination is handled
  // here.
  if (answered && message_bytes == 0 && state.fault_failed)
    return fail_in_order(qp, CompletionStatus::local_protection);
  const uint32_t offset = number * qp.mtu_bytes;
  const uint32_t payload_bytes = kWhole               ? message_bytes
                                 : message_bytes == 0 ? 0
                                                      : std::min(qp.mtu_bytes, message_bytes - offset);
  const bool last = kWhole || answered || number + 1 == progress.packets;

  context_.ready.prefetch_step();
  TxFrame* const frame = next_frame(context_, qp);
  if (frame == nullptr) return Step::blocked;
  const wire::Psn psn = progress.first_psn.plus(number);
  const bool reliable = qp.protocol() != Protocol::unreliable;
  const bool again = !kWhole && psn < state.sent_psn;
  const bool ack_request = reliable && (last || is_beyond_credits(qp, operation) ||
                                        (again && psn.next() == qp.recovery.lost_end) ||
                                        asks_inside_message(qp, psn.next(), number + 1));
  const Opcode opcode = qp.in_service(operation.by_place[SendOperation::place_of(number == 0, last)]);
  wire::PacketFields& fields = fields_;
  fields.bth = wire::make_bth(
      opcode, last && (wqe.flags & kSolicited) != 0, qp.attributes.destination_qpn, psn,
      static_cast<uint8_t>((ack_request ? wire::kAckRequestBit : 0) |
                           (reliable && context_.config.selective_ack ? wire::kSelectiveAckBit : 0)));
  fields.reth = {wqe.remote_va, wqe.rkey, wqe.length_bytes};
  fields.immediate = fields.invalidate_rkey = wqe.immediate_or_rkey;
  fields.xrc_srq_number = wqe.srq_number;
  fields.ipv4_identification = static_cast<uint16_t>(qp.tx_packets);
  if (answered) {
    if (read) {
      fields.reth.va += offset;
      fields.reth.length_bytes -= offset;
    }
    if (operation.is(kHasOperands))
      fields.atomic_eth = {wqe.remote_va, wqe.rkey, wqe.swap_or_add, wqe.compare};
    fields.feth = {wqe.flush_placement, wqe.flush_selectivity};
  }

  const bool as_rxe = wqe.opcode == SendOpcode::flush && context_.config.rxe_flush_icrc;
  const FrameForm form{.loopback = qp.loopback,
                       .crc_in_copy = (wqe.flags & kInline) == 0,
                       .icrc = as_rxe ? wire::IcrcForm::rxe_flush : wire::IcrcForm::specified};
  Step step = Step::sent;
  const uint32_t frame_bytes = emit(
      context_, *frame, qp.frame, fields, payload_bytes,
      form, [&](std::span<uint8_t> to, uint32_t * crc) __attribute__((always_inline)) {
        step = fill_payload(qp, wqe, offset, to, crc);
        return step == Step::sent;
      });
  if (step != Step::sent) return step;
  state.fault_failed = false;
  const uint32_t psns = read ? progress.packets - number : 1;
  const wire::Psn behind = kWhole ? state.next_psn : psn.plus(psns);
  if (qp.rate_control != nullptr) [[unlikely]] {
    context_.note_sent(qp, frame_bytes);
    if (ack_request) qp.recovery.asked_psn = behind.minus(1);
  }
  ++qp.tx_packets;
  if (context_.recorder != nullptr) [[unlikely]]
    record_request(context_, qp, wqe, fields, payload_bytes, number == 0 && !again);

  if (kWhole || behind > state.sent_psn) state.sent_psn = behind;
  if (!reliable) {
    finish_unreliable(qp, behind);
    return Step::sent;
  }
  if (again)
    note_resent(qp, psn);
  else if (ack_request && !qp.recovery.timing)
    start_timing(qp, psn);
  if (!kWhole) state.packet += psns;
  if (kWhole || state.packet == progress.packets) {
    ++state.current;
    state.packet = 0;
  }
  if (state.ack_deadline_ns == kNever) arm_ack_timer(qp);
  return Step::sent;
}

void Requester::send(QueuePair& qp, uint32_t& budget_packets) {
  RequesterState& state = qp.requester;
  if (state.fault_wait || state.rnr_deadline_ns != kNever) return;
  const uint32_t tail = qp.send_ring.tail();
  while (budget_packets != 0) {
    if (state.current != state.started) skip_acknowledged(qp);
    if (state.current == tail) return;
    if (!window_open(qp)) {
      context_.note_awaits_answers();
      return;
    }
    SendWqe& wqe = *qp.send_ring.header_at(state.current);
    const SendOperation& operation = operation_of(wqe.opcode);
    if (awaits_credits(qp, operation)) {
      context_.note_awaits_answers();
      return;
    }
    const bool fresh = state.current == state.started;
    if (fresh) {
      if (const Step step = start(qp, wqe, operation); step != Step::sent) {
        if (step != Step::retry) return;
        --budget_packets;
        continue;
      }
      if (operation.is(kLocal)) continue;
    }
    if (qp.rate_control != nullptr) [[unlikely]] {
      if (flight_full(qp)) {
        context_.note_awaits_answers();
        return;
      }
      if (!context_.may_send(qp)) return;
    }
    const bool whole = fresh && (operation.is(kAnswered) || wqe.length_bytes <= qp.mtu_bytes);
    const Step step = whole ? send_packet<true>(qp, wqe, operation) : send_packet<false>(qp, wqe, operation);
    if (step != Step::sent && step != Step::retry) return;
    // A retry counts too: a page that is taken away again and again must not keep other QPs from their turn.
    --budget_packets;
  }
}

/// UC packets are not acknowledged: a message completes when its last packet is sent (IBA 9.8.2.2).
void Requester::finish_unreliable(QueuePair& qp, wire::Psn behind) {
  RequesterState& state = qp.requester;
  state.unacked_psn = state.sent_psn = behind;
  if (++state.packet != qp.progress_at(state.current).packets) return;
  state.packet = 0;
  ++state.current;
  complete_head(qp);
  complete_local(qp);
}

/// Flushes the posted WQEs of a send queue in error (IBA 10.3.1.6).
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
  if (state.unacked_psn != state.sent_psn && qp.protocol() != Protocol::unreliable) arm_ack_timer(qp);
  state.fault_failed = outcome != odp::Outcome::done;
  context_.make_ready(qp);
}

}  // namespace faultline::transport
