// SPDX-License-Identifier: BSD-3-Clause
// Creates, opens, queries and destroys queue pairs.
#include <algorithm>

#include "stack/record/recorded_call.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/objects/send_rules.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

namespace {

constexpr uint32_t kKnownInitMask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
                                    IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
// Space for the eight bytes that ibv_wr_atomic_write takes by value; it fits into the space of one element.
constexpr uint32_t kAtomicWriteBytes = 8;

int check_type(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      return 0;
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_DRIVER:
      return EOPNOTSUPP;
  }
  return EINVAL;
}

bool takes_srq(ibv_qp_type type) {
  return type == IBV_QPT_RC || type == IBV_QPT_UD;  // ibv_create_qp(3)
}

/// Checks the objects that the type requires and allows; all must belong to the caller's context.
int check_objects(const ibv_context* context, const ibv_qp_init_attr_ex& init) {
  if (init.qp_type == IBV_QPT_XRC_RECV)
    return is_live(init.xrcd) && init.xrcd->context == context && init.srq == nullptr ? 0 : EINVAL;
  if (init.xrcd != nullptr || !is_live(init.pd) || init.pd->context != context) return EINVAL;
  if (!is_live(init.send_cq) || init.send_cq->context != context) return EINVAL;
  if (init.qp_type == IBV_QPT_XRC_SEND) return init.srq == nullptr ? 0 : EINVAL;
  if (!is_live(init.recv_cq) || init.recv_cq->context != context) return EINVAL;
  if (init.srq == nullptr) return 0;
  // A QP cannot use an XRC SRQ; each message selects one by its number.
  const bool fits = is_live(init.srq) && takes_srq(init.qp_type) && init.srq->context == context &&
                    srq_of(init.srq).xrcd == nullptr;
  return fits ? 0 : EINVAL;
}

int check_capacity(const ibv_qp_init_attr_ex& init) {
  const ibv_qp_cap& cap = init.cap;
  if (cap.max_send_wr > kMaxQpWr || cap.max_send_sge > kMaxSge) return EINVAL;
  if (cap.max_inline_data > kMaxInlineBytes) return EINVAL;
  if (init.srq != nullptr) return 0;  // ibv_create_qp(3): the receive attributes are ignored
  return cap.max_recv_wr > kMaxQpWr || cap.max_recv_sge > kMaxSge ? EINVAL : 0;
}

int check_init(const ibv_context* context, const ibv_qp_init_attr_ex& init) {
  if (!is_live(context)) return EINVAL;
  if (const int error = check_type(init.qp_type); error != 0) return error;
  if (const int error = check_objects(context, init); error != 0) return error;
  if (const int error = check_send_ops(init.qp_type, init.send_ops_flags); error != 0) return error;
  return check_capacity(init);
}

bool sends(ibv_qp_type type) {
  return type != IBV_QPT_XRC_RECV;
}
bool receives_of_its_own(const ibv_qp_init_attr_ex& init) {
  return init.srq == nullptr && init.qp_type != IBV_QPT_XRC_SEND && init.qp_type != IBV_QPT_XRC_RECV;
}

transport::QpInit transport_init(const ibv_qp_init_attr_ex& init, SharedQp& shared) {
  transport::QpInit result;
  result.type = static_cast<transport::QpType>(init.qp_type);
  result.domain = init.pd == nullptr ? 0 : pd_of(init.pd).domain;
  result.send_cq = init.send_cq == nullptr ? nullptr : &cq_of(init.send_cq);
  result.receive_cq = init.recv_cq == nullptr ? nullptr : &cq_of(init.recv_cq);
  if (sends(init.qp_type)) {
    result.max_send_wr = std::max(init.cap.max_send_wr, 1U);
    result.max_send_sge = init.cap.max_send_sge;
    // The elements' memory holds that much inline data anyway, and some programs send inline without
    // requesting it (rdma_xclient).
    result.max_inline_bytes = std::max<uint32_t>(
        init.cap.max_inline_data, static_cast<uint32_t>(init.cap.max_send_sge * sizeof(transport::Sge)));
    if ((init.send_ops_flags & IBV_QP_EX_WITH_ATOMIC_WRITE) != 0)
      result.max_inline_bytes = std::max(result.max_inline_bytes, kAtomicWriteBytes);
  }
  if (receives_of_its_own(init)) {
    result.max_receive_wr = std::max(init.cap.max_recv_wr, 1U);
    result.max_receive_sge = init.cap.max_recv_sge;
  }
  if (init.srq != nullptr) result.srq = srq_of(init.srq).transport_srq;
  result.xrc_domain = shared.xrc_domain;
  result.signal_all = init.sq_sig_all != 0;
  result.blocks_own_multicast = (init.create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) != 0;
  result.user = &shared;
  return result;
}

/// Returns the rings' actual capacities, which the program receives (ibv_create_qp(3)).
ibv_qp_cap capacity_of(const Qp& qp, const ibv_qp_init_attr_ex& init) {
  ibv_qp_cap cap{};
  if (sends(init.qp_type)) {
    cap.max_send_wr = qp.send_ring->capacity();
    cap.max_send_sge = qp.send_ring->max_sge();
    cap.max_inline_data = qp.send_ring->max_inline_bytes();
  }
  if (receives_of_its_own(init)) {
    cap.max_recv_wr = qp.receive_ring->capacity();
    cap.max_recv_sge = qp.receive_ring->max_sge();
  }
  return cap;
}

void set_public_fields(ibv_qp& qp, ibv_context* context, const ibv_qp_init_attr_ex& init) {
  qp.context = context;
  qp.qp_context = init.qp_context;
  qp.pd = init.pd;
  qp.send_cq = init.send_cq;
  qp.recv_cq = init.recv_cq;
  qp.srq = init.srq;
  qp.state = IBV_QPS_RESET;
  qp.qp_type = init.qp_type;
}

/// Connects a handle to its transport QP.
void attach(Qp& qp, const std::shared_ptr<SharedQp>& shared) {
  qp.shared = shared;
  qp.transport_qp = shared->transport_qp;
  qp.core = &qp.engine->backend->core(shared->core_index);
  qp.send_ring = &transport::send_ring_of(qp.transport_qp);
  qp.receive_ring = &transport::receive_ring_of(qp.transport_qp);
  qp.qp_base.qp_num = qp.qp_base.handle = transport::qpn_of(qp.transport_qp);
  qp.event_source.element.element.qp = &qp.qp_base;
  init_waiting(qp.qp_base);
  const std::lock_guard lock(shared->handles_mutex);
  qp.next_handle = shared->handles;
  shared->handles = &qp;
}

/// Applies `change` to the reference count of every object that a QP uses.
template <typename Change>
void change_references(const Qp& qp, Change change) {
  const ibv_qp& base = qp.qp_base;
  // An XRC target does not use the PD that it was given.
  if (base.pd != nullptr && qp.xrcd == nullptr) change(pd_of(base.pd).references);
  if (base.send_cq != nullptr) change(cq_of(base.send_cq).references);
  if (base.recv_cq != nullptr) change(cq_of(base.recv_cq).references);
  if (base.srq != nullptr) change(srq_of(base.srq).references);
  if (qp.xrcd != nullptr) change(qp.xrcd->references);
}

void hold_references(const Qp& qp) {
  change_references(qp, [](std::atomic<uint32_t>& count) { count.fetch_add(1, std::memory_order_relaxed); });
}

void drop_references(const Qp& qp) {
  change_references(qp, [](std::atomic<uint32_t>& count) { release(count); });
}

status::QpRow row_of(const ibv_qp_init_attr_ex& init, const SharedQp& shared) {
  status::QpRow row;
  row.created_ns = shared.created_ns;
  row.qpn = transport::qpn_of(shared.transport_qp);
  row.type = static_cast<uint8_t>(init.qp_type);
  row.core = static_cast<uint16_t>(shared.core_index);
  if (init.pd != nullptr) row.pd_handle = init.pd->handle;
  if (init.send_cq != nullptr) row.send_cq_handle = init.send_cq->handle;
  if (init.recv_cq != nullptr) row.receive_cq_handle = init.recv_cq->handle;
  if (init.srq != nullptr) row.srq_number = init.srq->handle;
  return row;
}

/// Creates the transport QP of a new handle. Returns 0 or ENOMEM; also throws std::bad_alloc.
int create_transport_qp(OpenDevice& engine, const ibv_qp_init_attr_ex& init, const Qp& handle,
                        SharedQp& shared) {
  if (handle.xrcd != nullptr)
    shared.core_index = handle.xrcd->domain->core_index;
  else
    shared.core_index = init.srq != nullptr ? srq_of(init.srq).core_index : engine.place();
  transport::QpInit request = transport_init(init, shared);
  request.posting_reads = {&handle, &handle.transport_qp};
  shared.ring_memory =
      ProgramMemory::of(init.pd == nullptr ? nullptr : &pd_of(init.pd), RingKind::work_requests);
  if (shared.ring_memory != nullptr) {
    using transport::ReceiveRing;
    using transport::SendRing;
    shared.ring_memory->reserve(
        SendRing::bytes_for(request.max_send_wr, request.max_send_sge, request.max_inline_bytes,
                            request.type == transport::QpType::ud),
        SendRing::kAlignmentBytes);
    shared.ring_memory->reserve(ReceiveRing::bytes_for(request.max_receive_wr, request.max_receive_sge, 0),
                                ReceiveRing::kAlignmentBytes);
    request.ring_memory = shared.ring_memory.get();
  }
  engine.on_owner(shared.core_index, [&] {
    shared.transport_qp = engine.backend->core(shared.core_index).create_qp(request);
    if (shared.transport_qp == nullptr) return;
    shared.created_ns = engine.backend->now();
    shared.published.publish(engine.backend->status(), row_of(init, shared));
    transport::Core::set_status_row(shared.transport_qp, shared.published.index());
  });
  return shared.transport_qp == nullptr ? ENOMEM : 0;
}

void destroy_transport_qp(OpenDevice& engine, SharedQp& shared) {
  engine.on_owner(shared.core_index,
                  [&] { engine.backend->core(shared.core_index).destroy_qp(shared.transport_qp); });
  shared.published.withdraw();
}

ibv_qp_init_attr plain(const ibv_qp_init_attr_ex& init, const ibv_qp_cap& cap) {
  ibv_qp_init_attr result{};
  result.qp_context = init.qp_context;
  result.send_cq = init.send_cq;
  result.recv_cq = init.recv_cq;
  result.srq = init.srq;
  result.cap = cap;
  result.qp_type = init.qp_type;
  result.sq_sig_all = init.sq_sig_all;
  return result;
}

/// Creates the handle and its transport QP, and lists an XRC target among those that can be opened. Throws
/// bad_alloc only before anything has to be undone.
Qp* create_all(OpenDevice& engine, ibv_context* context, ibv_qp_init_attr_ex& init) {
  auto qp = std::make_unique<Qp>();
  const auto shared = std::make_shared<SharedQp>();
  const bool is_target = init.qp_type == IBV_QPT_XRC_RECV;
  qp->engine = &engine;
  set_public_fields(qp->qp_base, context, init);
  if (is_target) {
    qp->xrcd = &xrcd_of(init.xrcd);
    shared->xrc_domain = qp->xrcd->domain->number;
  }
  if (create_transport_qp(engine, init, *qp, *shared) != 0) return nullptr;
  attach(*qp, shared);
  init.cap = capacity_of(*qp, init);
  shared->created = plain(init, init.cap);
  qp->extended = (init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  if (qp->extended) set_post_functions(*qp);
  hold_references(*qp);
  if (is_target) {
    const std::lock_guard lock(engine.xrc_mutex);
    shared->next_target = engine.xrc_targets;
    engine.xrc_targets = shared.get();
  }
  return qp.release();
}

ibv_qp* create_on(OpenDevice& engine, ibv_context* context, ibv_qp_init_attr_ex& init) {
  if (const int error = check_init(context, init); error != 0) return fail(error);
  if (const int error = trouble_of("ibv_create_qp", context); error != 0) return fail(error);
  if (engine.is_of_parent_process()) return fail(EIO);
  if (!acquire(engine.qps, kMaxQps)) return fail(ENOMEM);
  Qp* qp = nullptr;
  try {
    qp = create_all(engine, context, init);
  } catch (const std::bad_alloc&) {
    qp = nullptr;
  }
  if (qp == nullptr) {
    release(engine.qps);
    return fail(ENOMEM);
  }
  note_creation(&qp->qp_base);
  return &qp->qp_base;
}

ibv_qp* create(ibv_context* context, ibv_qp_init_attr_ex& init) {
  if (!is_live(context)) return fail(EINVAL);
  OpenDevice* const engine = context_of(context).started.load();
  // Each object that a QP needs has started the device; without one the checks fail.
  if (engine == nullptr) {
    const int refused = check_init(context, init);
    return fail(refused != 0 ? refused : EINVAL);
  }
  record::RecordedCall call(engine->backend->controls(), record::ControlCall::create_qp);
  call.row.qp_type = static_cast<uint8_t>(init.qp_type);
  ibv_qp* const qp = create_on(*engine, context, init);
  if (qp != nullptr)
    call.row.object = qp->qp_num;
  else
    call.end(errno);
  return qp;
}

/// Finds an XRC target; call under xrc_mutex.
std::shared_ptr<SharedQp> find_target(const OpenDevice& engine, uint32_t xrc_domain, uint32_t qpn) {
  for (SharedQp* target = engine.xrc_targets; target != nullptr; target = target->next_target) {
    if (target->xrc_domain != xrc_domain || transport::qpn_of(target->transport_qp) != qpn) continue;
    const std::lock_guard lock(target->handles_mutex);
    return target->handles->shared;  // a listed target has at least one handle
  }
  return nullptr;
}

}  // namespace

FAULTLINE_VERB ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  if (!is_live(pd) || init == nullptr) return fail(EINVAL);
  ibv_qp_init_attr_ex wanted{};
  wanted.qp_context = init->qp_context;
  wanted.send_cq = init->send_cq;
  wanted.recv_cq = init->recv_cq;
  wanted.srq = init->srq;
  wanted.cap = init->cap;
  wanted.qp_type = init->qp_type;
  wanted.sq_sig_all = init->sq_sig_all;
  wanted.pd = pd;
  ibv_qp* const qp = create(pd->context, wanted);
  if (qp != nullptr) init->cap = wanted.cap;
  return qp;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* init) {
  if (init == nullptr) return fail(EINVAL);
  // Indirection tables, hashes and TSO apply to raw packet QPs only.
  if ((init->comp_mask & ~kKnownInitMask) != 0) return fail(EOPNOTSUPP);
  ibv_qp_init_attr_ex wanted = *init;
  if ((init->comp_mask & IBV_QP_INIT_ATTR_PD) == 0) wanted.pd = nullptr;
  if ((init->comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0) wanted.xrcd = nullptr;
  if ((init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) == 0) wanted.send_ops_flags = 0;
  if ((init->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) == 0) wanted.create_flags = 0;
  const uint32_t known_flags = wanted.qp_type == IBV_QPT_UD ? IBV_QP_CREATE_BLOCK_SELF_MCAST_LB : 0;
  if ((wanted.create_flags & ~known_flags) != 0) return fail(EOPNOTSUPP);
  if (wanted.qp_type == IBV_QPT_XRC_RECV) {
    wanted.pd = nullptr;
    wanted.send_cq = wanted.recv_cq = nullptr;
  } else if (wanted.qp_type == IBV_QPT_XRC_SEND) {
    wanted.recv_cq = nullptr;
  }
  ibv_qp* const qp = create(context, wanted);
  if (qp == nullptr) return nullptr;
  init->cap = wanted.cap;
  // Also for an XRC target: librdmacm creates in this PD the SRQ that the target's messages select.
  if ((init->comp_mask & IBV_QP_INIT_ATTR_PD) != 0) qp->pd = init->pd;
  return qp;
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attributes) {
  if (!is_live(context) || attributes == nullptr) return fail(EINVAL);
  constexpr uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  constexpr uint32_t kKnown = kNeeded | IBV_QP_OPEN_ATTR_CONTEXT;
  if ((attributes->comp_mask & ~kKnown) != 0) return fail(EOPNOTSUPP);
  if ((attributes->comp_mask & kNeeded) != kNeeded || attributes->qp_type != IBV_QPT_XRC_RECV)
    return fail(EINVAL);
  if (!is_live(attributes->xrcd) || attributes->xrcd->context != context) return fail(EINVAL);
  if (const int error = trouble_of("ibv_open_qp", context); error != 0) return fail(error);
  Xrcd& xrcd = xrcd_of(attributes->xrcd);
  OpenDevice& engine = *context_of(context).started.load();
  if (engine.is_of_parent_process()) return fail(EIO);
  if (!acquire(engine.qps, kMaxQps)) return fail(ENOMEM);
  std::unique_ptr<Qp> qp(new (std::nothrow) Qp());
  int error = ENOMEM;
  if (qp != nullptr) {
    qp->engine = &engine;
    qp->xrcd = &xrcd;
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_XRC_RECV;
    if ((attributes->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0) init.qp_context = attributes->qp_context;
    set_public_fields(qp->qp_base, context, init);
    const std::lock_guard xrc_lock(engine.xrc_mutex);
    const std::shared_ptr<SharedQp> target = find_target(engine, xrcd.domain->number, attributes->qp_num);
    if (target != nullptr) attach(*qp, target);
    error = target == nullptr ? EINVAL : 0;
  }
  if (error != 0) {
    release(engine.qps);
    return fail(error);
  }
  qp->qp_base.state = static_cast<ibv_qp_state>(transport::state_of(qp->transport_qp));
  hold_references(*qp);
  note_creation(&qp->qp_base);
  return &qp.release()->qp_base;
}

namespace {

/// Removes a handle from its transport QP; returns true if it was the last.
bool detach(Qp& qp) {
  SharedQp& shared = *qp.shared;
  const std::lock_guard xrc_lock(qp.engine->xrc_mutex);
  const std::lock_guard lock(shared.handles_mutex);
  Qp** link = &shared.handles;
  while (*link != &qp) link = &(*link)->next_handle;
  *link = qp.next_handle;
  const bool last = shared.handles == nullptr;
  if (last && shared.xrc_domain != 0) {
    SharedQp** target = &qp.engine->xrc_targets;
    while (*target != &shared) target = &(*target)->next_target;
    *target = shared.next_target;
  }
  return last;
}

}  // namespace

namespace {

/// Transmits posted datagrams before the QP is destroyed, waiting at most 10 ms for a full port. Adapters
/// transmit them upon posting, and some programs destroy the QP right after that (mckey).
void send_datagrams(const Qp& qp) {
  constexpr TimeNs kPatienceNs = 10'000'000;
  if (qp.qp_base.qp_type != IBV_QPT_UD || qp.qp_base.state != IBV_QPS_RTS) return;
  DeviceBackend& backend = *qp.engine->backend;
  const TimeNs start = backend.now();
  while (qp.send_ring->head() != qp.send_ring->tail() && backend.now() - start < kPatienceNs) backend.drive();
}

}  // namespace

FAULTLINE_VERB int ibv_destroy_qp(ibv_qp* ibv_qp_pointer) {
  if (!is_live(ibv_qp_pointer)) return refused(EINVAL);
  Qp* const qp = &qp_of(ibv_qp_pointer);
  OpenDevice& engine = *qp->engine;
  record::RecordedCall call(engine.backend->controls(), record::ControlCall::destroy_qp);
  call.row.object = qp->qp_base.qp_num;
  call.row.qp_type = static_cast<uint8_t>(qp->qp_base.qp_type);
  call.row.from_state = static_cast<uint8_t>(transport::state_of(qp->transport_qp));
  {
    const std::lock_guard control(qp->shared->control_mutex);
    if (!qp->multicast.empty()) return refused(call.end(EBUSY));  // ibv_create_qp(3)
  }
  if (const int error = trouble_of("ibv_destroy_qp", ibv_qp_pointer); error != 0) return error;
  note_end(ibv_qp_pointer);
  send_datagrams(*qp);
  // After this call no engine turn uses the handle, so no event can follow those withdrawn below.
  if (detach(*qp)) {
    destroy_transport_qp(engine, *qp->shared);
    detach_counters(*qp->shared);
    qp->shared->ring_memory.reset();
  }
  const uint32_t delivered = context_of(qp->qp_base.context).events.withdraw(qp->event_source);
  end_waiting(qp->qp_base, [&] { return qp->qp_base.events_completed == delivered; });
  drop_references(*qp);
  release(engine.qps);
  delete qp;
  return 0;
}

FAULTLINE_VERB int ibv_query_qp(ibv_qp* ibv_qp_pointer, ibv_qp_attr* attributes, int mask,
                                ibv_qp_init_attr* init) {
  if (!is_live(ibv_qp_pointer) || attributes == nullptr) return refused(EINVAL);
  if (const int error = trouble_of("ibv_query_qp", ibv_qp_pointer); error != 0) return error;
  Qp& qp = qp_of(ibv_qp_pointer);
  SharedQp& shared = *qp.shared;
  const std::lock_guard lock(shared.control_mutex);
  transport::QpAttributes now;
  qp.engine->on_owner(shared.core_index, [&] { now = transport::attributes_of(qp.transport_qp); });
  *attributes = shared.attributes;
  attributes->qp_state = static_cast<ibv_qp_state>(now.state);
  attributes->cur_qp_state = attributes->qp_state;
  attributes->path_mig_state = IBV_MIG_MIGRATED;
  attributes->rq_psn = now.rq_psn;
  attributes->sq_psn = now.sq_psn;
  attributes->sq_draining = now.sq_draining ? 1 : 0;
  attributes->cap = shared.created.cap;
  // As in rdma-core: programs rely on a state that changes only by their own calls.
  if ((mask & IBV_QP_STATE) != 0) qp.qp_base.state = attributes->qp_state;
  if (init != nullptr) *init = shared.created;
  return 0;
}

FAULTLINE_VERB int ibv_query_qp_data_in_order(ibv_qp* /*qp*/, ibv_wr_opcode /*opcode*/, uint32_t /*flags*/) {
  return 0;  // packets after a gap may be placed early, and a retransmitted packet twice
}

/// ibv_query_ece(3): the device has no options for enhanced connection establishment.
FAULTLINE_VERB int ibv_query_ece(ibv_qp* ibv_qp_pointer, ibv_ece* ece) {
  if (!is_live(ibv_qp_pointer) || ece == nullptr) return refused(EINVAL);
  *ece = {};
  ece->vendor_id = description_of(context_of(ibv_qp_pointer->context)).vendor_id;
  return 0;
}

/// ibv_set_ece(3). Without a vendor: EOPNOTSUPP, as in rdma-core. Options that the device lacks do not stay:
/// "the actual ECE options" are what ibv_query_ece() returns.
FAULTLINE_VERB int ibv_set_ece(ibv_qp* ibv_qp_pointer, ibv_ece* ece) {
  if (!is_live(ibv_qp_pointer) || ece == nullptr) return refused(EINVAL);
  if (ece->vendor_id == 0) return refused(EOPNOTSUPP);
  const uint32_t vendor_id = description_of(context_of(ibv_qp_pointer->context)).vendor_id;
  return ece->vendor_id == vendor_id && ece->comp_mask == 0 ? 0 : refused(EINVAL);
}

FAULTLINE_VERB ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* ibv_qp_pointer) {
  if (!is_live(ibv_qp_pointer)) return nullptr;
  Qp& qp = qp_of(ibv_qp_pointer);
  return qp.extended ? &qp : nullptr;
}

}  // namespace faultline::verbs
