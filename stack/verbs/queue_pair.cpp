// SPDX-License-Identifier: BSD-3-Clause
// Creating, querying and destroying queue pairs.
#include <algorithm>

#include "stack/verbs/limits.hpp"
#include "stack/verbs/objects.hpp"

namespace faultline::verbs {

namespace {

int check_type(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_UD:
      return 0;
    case IBV_QPT_UC:
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
    case IBV_QPT_DRIVER:
      return EOPNOTSUPP;
  }
  return EINVAL;
}

int check_init(const ibv_pd& pd, const ibv_qp_init_attr& init) {
  if (const int error = check_type(init.qp_type); error != 0) return error;
  if (init.srq != nullptr) return EOPNOTSUPP;
  if (init.send_cq == nullptr || init.recv_cq == nullptr) return EINVAL;
  if (init.send_cq->context != pd.context || init.recv_cq->context != pd.context) return EINVAL;
  const ibv_qp_cap& cap = init.cap;
  if (cap.max_send_wr > kMaxQpWr || cap.max_recv_wr > kMaxQpWr) return EINVAL;
  if (cap.max_send_sge > kMaxSge || cap.max_recv_sge > kMaxSge) return EINVAL;
  return cap.max_inline_data > kMaxInlineBytes ? EINVAL : 0;
}

transport::QpInit transport_init(Qp& qp, const ibv_qp_init_attr& init) {
  transport::QpInit result;
  result.type = static_cast<transport::QpType>(init.qp_type);
  result.domain = pd_of(qp.pd).domain;
  result.send_cq = &cq_of(init.send_cq);
  result.receive_cq = &cq_of(init.recv_cq);
  result.max_send_wr = std::max(init.cap.max_send_wr, 1U);
  result.max_receive_wr = std::max(init.cap.max_recv_wr, 1U);
  result.max_send_sge = init.cap.max_send_sge;
  result.max_receive_sge = init.cap.max_recv_sge;
  result.max_inline_bytes = init.cap.max_inline_data;
  result.signal_all = init.sq_sig_all != 0;
  result.user = &qp;
  return result;
}

/// What the rings really are goes back to the program (ibv_create_qp(3)).
void report_capacity(const Qp& qp, ibv_qp_cap& cap) {
  cap.max_send_wr = qp.send_ring->capacity();
  cap.max_recv_wr = qp.receive_ring->capacity();
  cap.max_send_sge = qp.send_ring->max_sge();
  cap.max_recv_sge = qp.receive_ring->max_sge();
  cap.max_inline_data = qp.send_ring->max_inline_bytes();
}

void set_public_fields(Qp& qp, ibv_pd& pd, const ibv_qp_init_attr& init) {
  qp.context = pd.context;
  qp.qp_context = init.qp_context;
  qp.pd = &pd;
  qp.send_cq = init.send_cq;
  qp.recv_cq = init.recv_cq;
  qp.srq = nullptr;
  qp.state = IBV_QPS_RESET;
  qp.qp_type = init.qp_type;
  qp.events_completed = 0;
  qp.event_source.element.element.qp = &qp;
}

}  // namespace

FAULTLINE_VERB ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  if (const int error = check_init(*pd, *init); error != 0) return fail(error);
  std::unique_ptr<Qp> qp(new (std::nothrow) Qp());
  if (qp == nullptr) return fail(ENOMEM);
  Engine& engine = *context_of(pd->context).started.load();
  if (!acquire(engine.qps, kMaxQps)) return fail(ENOMEM);
  set_public_fields(*qp, *pd, *init);
  qp->engine = &engine;
  const transport::QpInit request = transport_init(*qp, *init);
  engine.on_owner([&] { qp->transport_qp = engine.backend->core().create_qp(request); });
  if (qp->transport_qp == nullptr) {
    release(engine.qps);
    return fail(ENOMEM);
  }
  qp->send_ring = &transport::send_ring_of(qp->transport_qp);
  qp->receive_ring = &transport::receive_ring_of(qp->transport_qp);
  qp->qp_num = qp->handle = transport::qpn_of(qp->transport_qp);
  pthread_mutex_init(&qp->mutex, nullptr);
  pthread_cond_init(&qp->cond, nullptr);
  report_capacity(*qp, init->cap);
  qp->created = *init;
  pd_of(pd).references.fetch_add(1, std::memory_order_relaxed);
  cq_of(init->send_cq).references.fetch_add(1, std::memory_order_relaxed);
  cq_of(init->recv_cq).references.fetch_add(1, std::memory_order_relaxed);
  return qp.release();
}

FAULTLINE_VERB int ibv_destroy_qp(ibv_qp* ibv_qp_pointer) {
  Qp* const qp = &qp_of(ibv_qp_pointer);
  Engine& engine = *qp->engine;
  // From here no engine turn knows the QP, so that no event can follow those withdrawn below.
  engine.on_owner([&] { engine.backend->core().destroy_qp(qp->transport_qp); });
  const uint32_t delivered = context_of(qp->context).events.withdraw(qp->event_source);
  pthread_mutex_lock(&qp->mutex);
  while (qp->events_completed != delivered) pthread_cond_wait(&qp->cond, &qp->mutex);
  pthread_mutex_unlock(&qp->mutex);
  pthread_cond_destroy(&qp->cond);
  pthread_mutex_destroy(&qp->mutex);
  release(cq_of(qp->send_cq).references);
  release(cq_of(qp->recv_cq).references);
  release(pd_of(qp->pd).references);
  release(engine.qps);
  delete qp;
  return 0;
}

FAULTLINE_VERB int ibv_query_qp(ibv_qp* ibv_qp_pointer, ibv_qp_attr* attributes, int /*mask*/,
                                ibv_qp_init_attr* init) {
  Qp& qp = qp_of(ibv_qp_pointer);
  const std::lock_guard lock(qp.control_mutex);
  transport::QpAttributes now;
  qp.engine->on_owner([&] { now = transport::attributes_of(qp.transport_qp); });
  *attributes = qp.attributes;
  attributes->qp_state = static_cast<ibv_qp_state>(transport::state_of(qp.transport_qp));
  attributes->cur_qp_state = attributes->qp_state;
  attributes->path_mig_state = IBV_MIG_MIGRATED;
  attributes->rq_psn = now.rq_psn;
  attributes->sq_psn = now.sq_psn;
  attributes->cap = qp.created.cap;
  qp.state = attributes->qp_state;
  if (init != nullptr) *init = qp.created;
  return 0;
}

FAULTLINE_VERB int ibv_query_qp_data_in_order(ibv_qp* /*qp*/, ibv_wr_opcode /*opcode*/, uint32_t /*flags*/) {
  return 0;  // a lost packet's successors are not placed, but a resent one may be placed twice
}

FAULTLINE_VERB ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* /*qp*/) {
  return nullptr;  // no QP has the extended post functions
}

}  // namespace faultline::verbs
