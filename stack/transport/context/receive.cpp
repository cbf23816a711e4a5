// SPDX-License-Identifier: BSD-3-Clause
// Receives from a QP's own ring or from a shared queue. In a QP's own ring, a receive stays at the head until
// it completes. From a shared queue other QPs take the next receives meanwhile.
#include <algorithm>
#include <cassert>

#include "stack/transport/context/context.hpp"
#include "stack/transport/qp/shared_receive_queue.hpp"

namespace faultline::transport {

namespace {

/// Describes the next receive in `qp.receive`, of which the QP has none yet. Returns false if none is posted.
[[gnu::always_inline]] inline bool peek_next(QueuePair& qp, SharedReceiveQueue* srq) {
  ReceiveRing& ring = srq == nullptr ? qp.receive_ring : *srq->ring;
  const uint32_t head = ring.head();
  if (head == ring.tail()) return false;
  ReceiveWqe& wqe = *ring.header_at(head);
  qp.receive = {.wr_id = wqe.wr_id,
                .length_bytes = wqe.length_bytes,
                .domain = srq == nullptr ? qp.domain : srq->domain,
                .sges = {ring.sges_of(&wqe), wqe.sge_count},
                .cq = srq == nullptr || srq->cq == nullptr ? qp.receive_cq : srq->cq,
                .srq = srq};
  return true;
}

}  // namespace

const Receive* CoreContext::peek_receive(QueuePair& qp, SharedReceiveQueue* srq) {
  return qp.receive_taken || peek_next(qp, srq) ? &qp.receive : nullptr;
}

void CoreContext::take_peeked(QueuePair& qp) {
  if (qp.receive_taken) return;
  qp.receive_taken = true;
  if (qp.receive.srq == nullptr) return;
  assert(qp.receive.sges.size() <= qp.shared_sges.size());
  std::copy(qp.receive.sges.begin(), qp.receive.sges.end(), qp.shared_sges.begin());
  qp.receive.sges = {qp.shared_sges.data(), qp.receive.sges.size()};
  retire_shared(*qp.receive.srq);
}

bool CoreContext::take_receive(QueuePair& qp, SharedReceiveQueue* srq) {
  if (peek_receive(qp, srq) == nullptr) return false;
  take_peeked(qp);
  return true;
}

void CoreContext::retire_shared(SharedReceiveQueue& srq) {
  srq.ring->retire_to(srq.ring->head() + 1);
  if (srq.limit == 0 || posted_in(&srq) >= srq.limit) return;
  // Raised once: the program arms the limit again (ibv_modify_srq(3)).
  srq.limit = 0;
  if (events != nullptr) events->on_srq_event(&srq, AsyncEvent::srq_limit_reached);
}

void CoreContext::complete_receive(QueuePair& qp, Completion& completion) {
  assert(qp.receive_taken);
  qp.receive_taken = false;
  ++receives_completed;
  completion.wr_id = qp.receive.wr_id;
  completion.qpn = qp.qpn;
  // Retire before pushing the completion: the application may reuse the slot as soon as it polls it.
  if (qp.receive.srq == nullptr) qp.receive_ring.retire_to(qp.receive_ring.head() + 1);
  if (qp.is_counted) [[unlikely]]
    qp.counted->add(CountedOperation::receive, completion.status, completion.byte_length);
  push(qp, *qp.receive.cq, completion);
}

void CoreContext::flush_receives(QueuePair& qp) {
  Completion flushed;
  flushed.status = CompletionStatus::work_request_flushed;
  flushed.opcode = CompletionOpcode::recv;
  flushed.vendor_error = static_cast<uint32_t>(qp.failure.cause);
  // A receive taken from a shared queue belongs to this QP alone; the remaining ones belong to the other QPs.
  if (qp.receive_taken) complete_receive(qp, flushed);
  while (take_own_receive(qp)) complete_receive(qp, flushed);
}

void CoreContext::forget(QueuePair& qp, const SharedReceiveQueue& gone) {
  if (qp.responder.srq == &gone) qp.responder.srq = nullptr;
  if (!qp.receive_taken || qp.receive.srq != &gone) return;
  qp.receive_taken = false;
  if (qp.responder.message == InboundMessage::send) qp.responder.message = InboundMessage::none;
}

bool CoreContext::take_own_receive(QueuePair& qp) {
  return qp.receive_ring.head() != qp.receive_ring.tail() && take_receive(qp, nullptr);
}

}  // namespace faultline::transport
