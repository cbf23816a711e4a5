// SPDX-License-Identifier: BSD-3-Clause
// Shared receive queues, basic and XRC. post_receive.cpp implements posting.
#include <algorithm>

#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

namespace {

int check_init(const ibv_context* context, const ibv_srq_init_attr_ex& init) {
  if (!is_live(context) || !is_live(init.pd) || init.pd->context != context) return EINVAL;
  if (init.attr.max_wr == 0 || init.attr.max_wr > kMaxSrqWr || init.attr.max_sge > kMaxSge) return EINVAL;
  if (init.srq_type == IBV_SRQT_BASIC) return 0;
  if (init.srq_type != IBV_SRQT_XRC) return EOPNOTSUPP;  // tag matching
  if (!is_live(init.xrcd) || init.xrcd->context != context) return EINVAL;
  return is_live(init.cq) && init.cq->context == context ? 0 : EINVAL;
}

transport::SrqInit transport_init(Srq& srq, const ibv_srq_init_attr_ex& init) {
  transport::SrqInit result;
  result.domain = pd_of(init.pd).domain;
  result.max_wr = init.attr.max_wr;
  result.max_sge = std::max(init.attr.max_sge, 1U);
  // ibv_create_srq(3): srq_limit is irrelevant here; ibv_modify_srq arms it.
  if (srq.cq != nullptr) result.cq = srq.cq;
  if (srq.xrcd != nullptr) result.xrc_domain = srq.xrcd->domain->number;
  result.user = &srq;
  return result;
}

/// Reserves the ring's memory if the program supplies it. False if memory is short.
bool reserve_ring(Srq& srq, transport::SrqInit& request) {
  try {
    srq.ring_memory = ProgramMemory::of(&pd_of(srq.pd), RingKind::shared_receives);
    if (srq.ring_memory == nullptr) return true;
    srq.ring_memory->reserve(transport::ReceiveRing::bytes_for(request.max_wr, request.max_sge, 0),
                             transport::ReceiveRing::kAlignmentBytes);
  } catch (const std::bad_alloc&) {
    return false;
  }
  request.ring_memory = srq.ring_memory.get();
  return true;
}

template <typename Change>
void change_references(const Srq& srq, Change change) {
  change(pd_of(srq.pd).references);
  if (srq.cq != nullptr) change(srq.cq->references);
  if (srq.xrcd != nullptr) change(srq.xrcd->references);
}

ibv_srq* create(ibv_context* context, ibv_srq_init_attr_ex& init) {
  if (const int error = check_init(context, init); error != 0) return fail(error);
  if (const int error = trouble_of("ibv_create_srq", context); error != 0) return fail(error);
  OpenDevice& engine = *context_of(context).started.load();
  if (engine.is_of_parent_process()) return fail(EIO);
  std::unique_ptr<Srq> srq(new (std::nothrow) Srq());
  if (srq == nullptr || !acquire(engine.srqs, kMaxSrqs)) return fail(ENOMEM);
  srq->context = context;
  srq->srq_context = init.srq_context;
  srq->pd = init.pd;
  srq->engine = &engine;
  if (init.srq_type == IBV_SRQT_XRC) {
    srq->cq = &cq_of(init.cq);
    srq->xrcd = &xrcd_of(init.xrcd);
  }
  srq->core_index = srq->xrcd != nullptr ? srq->xrcd->domain->core_index : engine.place();
  transport::SrqInit request = transport_init(*srq, init);
  if (!reserve_ring(*srq, request)) {
    release(engine.srqs);
    return fail(ENOMEM);
  }
  engine.on_owner(srq->core_index,
                  [&] { srq->transport_srq = engine.backend->core(srq->core_index).create_srq(request); });
  if (srq->transport_srq == nullptr) {
    release(engine.srqs);
    return fail(ENOMEM);
  }
  const transport::ReceiveRing& ring = transport::receive_ring_of(srq->transport_srq);
  init.attr.max_wr = srq->max_wr = ring.capacity();
  init.attr.max_sge = srq->max_sge = ring.max_sge();
  srq->handle = transport::number_of(srq->transport_srq);
  note_creation(static_cast<ibv_srq*>(srq.get()));
  srq->event_source.element.element.srq = srq.get();
  srq->published.publish(engine.backend->status(), {.created_ns = engine.backend->now(),
                                                    .number = srq->handle,
                                                    .pd_handle = srq->pd->handle,
                                                    .cq_handle = srq->cq != nullptr ? srq->cq->handle : 0,
                                                    .max_wr = srq->max_wr});
  init_waiting(*srq);
  change_references(*srq,
                    [](std::atomic<uint32_t>& count) { count.fetch_add(1, std::memory_order_relaxed); });
  return srq.release();
}

}  // namespace

FAULTLINE_VERB ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
  if (!is_live(pd) || init == nullptr) return fail(EINVAL);
  ibv_srq_init_attr_ex wanted{};
  wanted.srq_context = init->srq_context;
  wanted.attr = init->attr;
  wanted.srq_type = IBV_SRQT_BASIC;
  wanted.pd = pd;
  ibv_srq* const srq = create(pd->context, wanted);
  if (srq != nullptr) init->attr = wanted.attr;
  return srq;
}

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* init) {
  if (init == nullptr) return fail(EINVAL);
  constexpr uint32_t kKnown =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  if ((init->comp_mask & ~kKnown) != 0) return fail(EOPNOTSUPP);
  ibv_srq_init_attr_ex wanted = *init;
  if ((init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0) wanted.srq_type = IBV_SRQT_BASIC;
  if ((init->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0) wanted.pd = nullptr;
  if ((init->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0) wanted.xrcd = nullptr;
  if ((init->comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0) wanted.cq = nullptr;
  ibv_srq* const srq = create(context, wanted);
  if (srq != nullptr) init->attr = wanted.attr;
  return srq;
}

FAULTLINE_VERB int ibv_modify_srq(ibv_srq* ibv_srq_pointer, ibv_srq_attr* attributes, int attr_mask) {
  if (!is_live(ibv_srq_pointer) || attributes == nullptr) return refused(EINVAL);
  const auto mask = static_cast<uint32_t>(attr_mask);
  if ((mask & ~uint32_t{IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT}) != 0) return refused(EINVAL);
  if (const int error = trouble_of("ibv_modify_srq", ibv_srq_pointer); error != 0) return error;
  Srq& srq = srq_of(ibv_srq_pointer);
  const std::lock_guard control(srq.control_mutex);
  const bool resizes = (mask & IBV_SRQ_MAX_WR) != 0;
  const bool limits = (mask & IBV_SRQ_LIMIT) != 0;
  if (resizes && (attributes->max_wr == 0 || attributes->max_wr > kMaxSrqWr)) return refused(EINVAL);
  if (limits && attributes->srq_limit > (resizes ? attributes->max_wr : srq.max_wr)) return refused(EINVAL);
  const uint32_t limit = limits ? attributes->srq_limit : 0;
  int error = 0;
  {
    const std::lock_guard no_posts(srq.lock);
    srq.engine->on_owner(srq.core_index, [&] {
      error = srq.engine->backend->core(srq.core_index)
                  .modify_srq(srq.transport_srq, limits ? &limit : nullptr, resizes ? attributes->max_wr : 0);
    });
    if (error == 0) srq.max_wr = transport::receive_ring_of(srq.transport_srq).capacity();
  }
  return refused(error);
}

FAULTLINE_VERB int ibv_query_srq(ibv_srq* ibv_srq_pointer, ibv_srq_attr* attributes) {
  if (!is_live(ibv_srq_pointer) || attributes == nullptr) return refused(EINVAL);
  if (const int error = trouble_of("ibv_query_srq", ibv_srq_pointer); error != 0) return error;
  Srq& srq = srq_of(ibv_srq_pointer);
  const std::lock_guard control(srq.control_mutex);
  attributes->max_wr = srq.max_wr;
  attributes->max_sge = srq.max_sge;
  srq.engine->on_owner(srq.core_index, [&] { attributes->srq_limit = srq.transport_srq->limit; });
  return 0;
}

FAULTLINE_VERB int ibv_destroy_srq(ibv_srq* ibv_srq_pointer) {
  if (!is_live(ibv_srq_pointer)) return refused(EINVAL);
  Srq* const srq = &srq_of(ibv_srq_pointer);
  if (srq->references.load(std::memory_order_acquire) != 0) return refused(EBUSY);
  if (const int error = trouble_of("ibv_destroy_srq", ibv_srq_pointer); error != 0) return error;
  note_end(ibv_srq_pointer);
  OpenDevice& engine = *srq->engine;
  // After this call no engine turn uses the SRQ, so no event can follow those withdrawn below.
  engine.on_owner(srq->core_index,
                  [&] { engine.backend->core(srq->core_index).destroy_srq(srq->transport_srq); });
  const uint32_t delivered = context_of(srq->context).events.withdraw(srq->event_source);
  end_waiting(*srq, [&] { return srq->events_completed == delivered; });
  srq->ring_memory.reset();
  change_references(*srq, [](std::atomic<uint32_t>& count) { release(count); });
  release(engine.srqs);
  delete srq;
  return 0;
}

int get_srq_num(ibv_srq* ibv_srq_pointer, uint32_t* number) {
  if (!is_live(ibv_srq_pointer) || number == nullptr) return refused(EINVAL);
  const Srq& srq = srq_of(ibv_srq_pointer);
  if (srq.xrcd == nullptr) return refused(EINVAL);  // only an XRC SRQ has a number
  *number = transport::number_of(srq.transport_srq);
  return 0;
}

}  // namespace faultline::verbs
