// SPDX-License-Identifier: BSD-3-Clause
// Requests with a response other than data: compare-and-swap, fetch-and-add, ATOMIC WRITE and FLUSH. Each is
// executed once; results of atomics are kept to answer duplicates (IBA 9.4.5, 9.7.5.1.3; A19).
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include "stack/transport/rc/responder.hpp"

namespace faultline::transport {

namespace {

constexpr uint8_t kPlaceGlobal = 1U << 0;
constexpr uint8_t kPlacePersistent = 1U << 1;
constexpr uint8_t kWholeRegion = 1;

odp::AtomicRequest request_of(const wire::Packet& packet) {
  const wire::AtomicEth eth = packet.atomic_eth();
  const bool swaps = packet.info->operation == wire::Operation::compare_swap;
  return {.op = swaps ? odp::AtomicOp::compare_swap : odp::AtomicOp::fetch_add,
          .compare = eth.compare,
          .operand = eth.swap_or_add};
}

}  // namespace

/// Allocates the rings, so that the data path never allocates. In SQD the responder continues to work (IBA
/// 10.3.1.4), so queued responses and the newest results of atomics are moved over.
int Responder::set_resources(QueuePair& qp, uint32_t capacity) {
  ResponderState& state = qp.responder;
  if (state.job_count > capacity) return EBUSY;
  std::unique_ptr<QueuedResponse[]> jobs(new (std::nothrow) QueuedResponse[capacity]);
  std::unique_ptr<AtomicResult[]> atomics(new (std::nothrow) AtomicResult[capacity]);
  if (jobs == nullptr || atomics == nullptr) return ENOMEM;
  for (uint32_t i = 0; i < state.job_count; ++i) jobs[i] = state.job(i);
  const uint32_t kept = std::min(capacity, state.job_capacity);
  for (uint32_t age = 1; age <= kept; ++age)
    atomics[kept - age] = state.atomics[(state.next_atomic - age) % state.job_capacity];
  state.jobs = std::move(jobs);
  state.atomics = std::move(atomics);
  state.job_capacity = capacity;
  state.job_head = 0;
  state.next_atomic = kept;
  return 0;
}

/// Checks for a free response entry; otherwise sends a NAK. A requester that obeys max_dest_rd_atomic always
/// finds one.
bool Responder::has_room_for_answer(QueuePair& qp) {
  ResponderState& state = qp.responder;
  if (state.job_count == state.job_capacity) drop_answered_read(qp);
  if (state.job_count != state.job_capacity) return true;
  CoreContext::blame(qp, status::FailureCause::too_many_reads);
  nak_and_close(qp, wire::NakCode::invalid_request, AsyncEvent::qp_request_error);
  return false;
}

/// Advances the state after the request at `psn`, whose response takes `psns` PSNs.
void Responder::finish_answered(QueuePair& qp, wire::Psn psn, uint32_t psns) {
  ResponderState& state = qp.responder;
  assert(psn == state.expected_psn);
  state.advance(psns);
  state.msn = (state.msn + 1) & wire::Psn::kMask;
  state.park_deadline_ns = kNever;
  state.park_floor = state.park_generation + 1;
  settle_nak(qp, psn);
  ++context_.counters.messages_received;
}

Execution Responder::execute_atomic(QueuePair& qp, const wire::Packet& packet) {
  ResponderState& state = qp.responder;
  const wire::AtomicEth eth = packet.atomic_eth();
  if (!has_room_for_answer(qp)) return Execution::done;
  if (!is_enabled(qp, odp::kRemoteAtomic)) return refuse_function(qp);
  if (eth.va % kAtomicBytes != 0) {  // IBA 9.4.5.2
    context_.count(DropReason::access);
    CoreContext::blame(qp, status::FailureCause::misaligned_atomic);
    nak_and_close(qp, wire::NakCode::invalid_request, AsyncEvent::qp_request_error);
    return Execution::done;
  }
  const odp::Target target{eth.rkey, domain_of(qp), odp::kRemoteAtomic, qp.qpn};
  uint64_t original = 0;
  switch (context_.memory.atomic(target, eth.va, request_of(packet), original)) {
    case odp::Outcome::done:
      break;
    case odp::Outcome::miss:
      return miss(qp, target, eth.va, kAtomicBytes);
    case odp::Outcome::violation:
      return refuse_access(qp, target, eth.va, kAtomicBytes);
  }
  const wire::Psn psn = packet.bth.psn;
  finish_answered(qp, psn, 1);
  state.atomics[state.next_atomic++ % state.job_capacity] = {psn, true, original};
  queue_answer(
      qp,
      {.kind = ResponseKind::atomic, .first_psn = psn, .packets = 1, .msn = state.msn, .original = original});
  return Execution::done;
}

Execution Responder::execute_atomic_write(QueuePair& qp, const wire::Packet& packet) {
  const wire::Reth reth = packet.reth();
  if (!has_room_for_answer(qp)) return Execution::done;
  if (!is_enabled(qp, odp::kRemoteWrite)) return refuse_function(qp);
  // The parser ensures a payload of eight bytes; the RETH must state that length too (CVE-2026-46114).
  if (reth.length_bytes != kAtomicBytes || reth.va % kAtomicBytes != 0) {
    context_.count(DropReason::payload_rule);
    CoreContext::blame(qp, reth.va % kAtomicBytes != 0 ? status::FailureCause::misaligned_atomic
                                                       : status::FailureCause::malformed_request);
    nak_and_close(qp, wire::NakCode::invalid_request, AsyncEvent::qp_request_error);
    return Execution::done;
  }
  const odp::Target target{reth.rkey, domain_of(qp), odp::kRemoteWrite, qp.qpn};
  odp::AtomicRequest store{.op = odp::AtomicOp::store};
  std::memcpy(&store.operand, packet.payload().data(), kAtomicBytes);
  uint64_t original = 0;
  switch (context_.memory.atomic(target, reth.va, store, original)) {
    case odp::Outcome::done:
      break;
    case odp::Outcome::miss:
      return miss(qp, target, reth.va, kAtomicBytes);
    case odp::Outcome::violation:
      return refuse_access(qp, target, reth.va, kAtomicBytes);
  }
  finish_answered(qp, packet.bth.psn, 1);
  queue_answer(qp, {.first_psn = packet.bth.psn, .packets = 1, .msn = qp.responder.msn});
  return Execution::done;
}

/// The data was written by earlier requests, so it is in memory. FLUSH makes it globally visible or
/// persistent.
Execution Responder::execute_flush(QueuePair& qp, const wire::Packet& packet) {
  const wire::Feth feth = packet.feth();
  const wire::Reth reth = packet.reth();
  if (!has_room_for_answer(qp)) return Execution::done;
  uint32_t need = 0;
  if ((feth.placement_type & kPlaceGlobal) != 0) need |= odp::kFlushGlobal;
  if ((feth.placement_type & kPlacePersistent) != 0) need |= odp::kFlushPersistent;
  const bool known = need != 0 && (feth.placement_type & ~(kPlaceGlobal | kPlacePersistent)) == 0;
  if (!known || feth.selectivity > kWholeRegion || !is_enabled(qp, need)) return refuse_function(qp);
  const odp::Target target{reth.rkey, domain_of(qp), need, qp.qpn};
  uint64_t va = reth.va;
  uint64_t length_bytes = reth.length_bytes;
  if (feth.selectivity == kWholeRegion && !context_.memory.range_of(reth.rkey, va, length_bytes))
    return refuse_access(qp, target, va, length_bytes);
  const odp::FlushKind kind =
      (need & odp::kFlushPersistent) != 0 ? odp::FlushKind::persistent : odp::FlushKind::global;
  switch (context_.memory.flush(target, va, length_bytes, kind)) {
    case odp::Outcome::done:
      break;
    case odp::Outcome::miss:
      return miss(qp, target, va, length_bytes);
    case odp::Outcome::violation:
      return refuse_access(qp, target, va, length_bytes);
  }
  finish_answered(qp, packet.bth.psn, 1);
  queue_answer(qp, {.first_psn = packet.bth.psn, .packets = 1, .msn = qp.responder.msn});
  return Execution::done;
}

/// Answers a duplicate of an executed request, whose response was lost.
void Responder::answer_again(QueuePair& qp, const wire::Packet& packet) {
  ResponderState& state = qp.responder;
  const wire::Psn psn = packet.bth.psn;
  QueuedResponse answer{.first_psn = psn, .packets = 1, .msn = state.msn, .duplicate = true};
  switch (packet.info->operation) {
    case wire::Operation::atomic_write:
    case wire::Operation::flush:
      break;
    default: {
      const AtomicResult* result = nullptr;
      for (uint32_t i = 0; i < state.job_capacity; ++i)
        if (state.atomics[i].valid && state.atomics[i].psn == psn) result = &state.atomics[i];
      // A duplicate that is too old to be known is dropped (IBA 9.7.5.1.3).
      if (result == nullptr) return context_.count(DropReason::payload_rule);
      answer.kind = ResponseKind::atomic;
      answer.original = result->original;
    }
  }
  QueuedResponse* const place = place_again(qp, psn, 1);
  if (place == nullptr) return;
  *place = answer;
  context_.make_ready(qp);
}

}  // namespace faultline::transport
