// SPDX-License-Identifier: BSD-3-Clause
// Memory windows. odp allocates their keys; a bind passes through the send queue like any request.
#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/send_rules.hpp"
#include "stack/verbs/post/work_request.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

ibv_mw* alloc_mw(ibv_pd* ibv_pd_pointer, ibv_mw_type type) {
  if (!is_live(ibv_pd_pointer)) return fail(EINVAL);
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return fail(EINVAL);
  if (const int error = trouble_of("ibv_alloc_mw", ibv_pd_pointer->context); error != 0) return fail(error);
  Pd& pd = pd_of(ibv_pd_pointer);
  OpenDevice& engine = *context_of(pd.context).started.load();
  std::unique_ptr<Mw> mw(new (std::nothrow) Mw());
  if (mw == nullptr || !acquire(engine.mws, kMaxMws)) return fail(ENOMEM);
  const odp::RegionResult result =
      engine.backend->memory().allocate_window(pd.domain, static_cast<odp::WindowType>(type));
  if (result.error != 0) {
    release(engine.mws);
    return fail(result.error);
  }
  constexpr unsigned kVariantBits = 8;
  mw->context = pd.context;
  mw->pd = &pd;
  mw->rkey = result.key;
  mw->handle = result.key >> kVariantBits;
  mw->type = type;
  pd.references.fetch_add(1, std::memory_order_relaxed);
  return mw.release();
}

int dealloc_mw(ibv_mw* ibv_mw_pointer) {
  if (!is_live(ibv_mw_pointer)) return refused(EINVAL);
  if (const int error = trouble_of("ibv_dealloc_mw", ibv_mw_pointer->context); error != 0) return error;
  Mw* const mw = static_cast<Mw*>(ibv_mw_pointer);
  OpenDevice& engine = *context_of(mw->context).started.load();
  if (const int error = engine.backend->memory().deallocate_window(mw->rkey); error != 0)
    return refused(error);
  release(pd_of(mw->pd).references);
  release(engine.mws);
  delete mw;
  return 0;
}

/// ibv_bind_mw(3), type 1: the provider chooses the next key. `mw` has it as soon as the bind is posted, as
/// the header's inline function documents.
int bind_mw(ibv_qp* ibv_qp_pointer, ibv_mw* mw, ibv_mw_bind* bind) {
  constexpr uint32_t kBindFlags = IBV_SEND_FENCE | IBV_SEND_SIGNALED;
  if (!is_live(ibv_qp_pointer) || !is_live(mw) || bind == nullptr) return refused(EINVAL);
  Qp& qp = qp_of(ibv_qp_pointer);
  transport::SendRing& ring = *qp.send_ring;
  {
    const std::lock_guard lock(qp.send_lock);
    if (!send_rule_of(IBV_WR_BIND_MW).allowed_on(qp.qp_base.qp_type)) return refused(EINVAL);
    if (!takes_sends(transport::state_of(qp.transport_qp))) return refused(EINVAL);
    if ((bind->send_flags & ~kBindFlags) != 0) return refused(EINVAL);
    transport::SendWqe* const wqe = ring.prepare();
    if (wqe == nullptr) return refused(ENOMEM);
    const uint32_t new_rkey = ibv_inc_rkey(mw->rkey);
    *wqe = {};
    wqe->wr_id = bind->wr_id;
    wqe->opcode = transport::SendOpcode::bind_mw;
    wqe->flags = static_cast<uint8_t>(bind->send_flags);
    if (const int error = set_bind(qp, *wqe, *mw, new_rkey, bind->bind_info); error != 0)
      return refused(error);
    mw->rkey = new_rkey;
    ring.advance();
    ring.publish();
  }
  qp.core->ring_doorbell(qp.transport_qp);
  return 0;
}

int bind_mw_in_trouble(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  if (!is_live(qp)) return EINVAL;
  if (const int error = trouble_of("ibv_bind_mw", qp); error != 0) return error;
  return bind_mw(qp, mw, bind);
}

}  // namespace faultline::verbs
