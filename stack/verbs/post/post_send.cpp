// SPDX-License-Identifier: BSD-3-Clause
// ibv_post_send.
#include <endian.h>

#include "stack/base/probes.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/send_rules.hpp"
#include "stack/verbs/post/work_request.hpp"

namespace faultline::verbs {

namespace {

int build_payload(transport::SendRing& ring, const ibv_send_wr& wr, transport::SendWqe& wqe) {
  const uint32_t sge_count = static_cast<uint32_t>(load_once(wr.num_sge));  // negative: above the limit
  const ibv_sge* const list = load_once(wr.sg_list);
  if (sge_count > kMaxSge) return EINVAL;
  if ((wqe.flags & IBV_SEND_INLINE) != 0) return copy_inline(ring, wqe, list, sge_count);
  if (sge_count > ring.max_sge()) return EINVAL;
  wqe.sge_count = static_cast<uint8_t>(sge_count);
  return copy_sges(list, sge_count, ring.sges_of(&wqe), wqe.length_bytes);
}

/// Builds the bind of a type 2 window; ibv_bind_mw binds type 1 windows.
int build_bind(const Qp& qp, const ibv_send_wr& wr, transport::SendWqe& wqe) {
  ibv_mw* const mw = load_once(wr.bind_mw.mw);
  if (!is_live(mw) || mw->type != IBV_MW_TYPE_2) return EINVAL;
  ibv_mw_bind_info info{};
  info.mr = load_once(wr.bind_mw.bind_info.mr);
  info.addr = load_once(wr.bind_mw.bind_info.addr);
  info.length = load_once(wr.bind_mw.bind_info.length);
  info.mw_access_flags = load_once(wr.bind_mw.bind_info.mw_access_flags);
  const uint32_t new_rkey = load_once(wr.bind_mw.rkey);
  if (const int error = set_bind(qp, wqe, *mw, new_rkey, info); error != 0) return error;
  mw->rkey = new_rkey;
  return 0;
}

/// Fills the opcode's fields other than the payload.
int build_operation(const Qp& qp, const ibv_send_wr& wr, transport::SendWqe& wqe) {
  switch (static_cast<uint32_t>(wqe.opcode)) {
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD: {
      const uint64_t compare_or_add = load_once(wr.wr.atomic.compare_add);
      const bool compares = wqe.opcode == transport::SendOpcode::atomic_cmp_and_swp;
      wqe.compare = compares ? compare_or_add : 0;
      wqe.swap_or_add = compares ? load_once(wr.wr.atomic.swap) : compare_or_add;
      wqe.remote_va = load_once(wr.wr.atomic.remote_addr);
      wqe.rkey = load_once(wr.wr.atomic.rkey);
      return 0;
    }
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_LOCAL_INV:
      wqe.immediate_or_rkey = load_once(wr.invalidate_rkey);
      return 0;
    case IBV_WR_BIND_MW:
      return build_bind(qp, wr, wqe);
    default:
      wqe.immediate_or_rkey = be32toh(load_once(wr.imm_data));
      if (qp.qp_base.qp_type == IBV_QPT_UD)
        return set_ud_destination(qp, wqe, load_once(wr.wr.ud.ah), load_once(wr.wr.ud.remote_qpn),
                                  load_once(wr.wr.ud.remote_qkey));
      wqe.remote_va = load_once(wr.wr.rdma.remote_addr);
      wqe.rkey = load_once(wr.wr.rdma.rkey);
      return 0;
  }
}

int build_send(const Qp& qp, const ibv_send_wr& wr, transport::SendWqe& wqe) {
  const uint32_t opcode = uint32_t{load_once(wr.opcode)};
  const uint32_t flags = load_once(wr.send_flags);
  const SendRule& rule = send_rule_of(opcode);
  // FLUSH has fields that this header's ibv_send_wr lacks; programs use faultline_wr_flush.
  if (!rule.allowed_on(qp.qp_base.qp_type) || opcode == kOpcodeFlush) return EINVAL;
  if ((flags & ~kKnownSendFlags) != 0) return EINVAL;
  const uint64_t wr_id = load_once(wr.wr_id);
  wqe = {};
  wqe.wr_id = wr_id;
  wqe.opcode = static_cast<transport::SendOpcode>(opcode);
  wqe.flags = static_cast<uint8_t>(flags);
  if (rule.payload != Payload::none)
    if (const int error = build_payload(*qp.send_ring, wr, wqe); error != 0) return error;
  if (qp.qp_base.qp_type == IBV_QPT_XRC_SEND) {
    wqe.srq_number = load_once(wr.qp_type.xrc.remote_srqn);
    if (wqe.srq_number > wire::kQpnMask) return EINVAL;
  }
  // Check before a bind changes its window's key.
  if (const int error = check_allowed(qp, wqe, rule); error != 0) return error;
  return build_operation(qp, wr, wqe);
}

}  // namespace

int post_send(ibv_qp* ibv_qp_pointer, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Qp& qp = qp_of(ibv_qp_pointer);
  transport::Core::expect_doorbell(qp.transport_qp);
  transport::SendRing& ring = *qp.send_ring;
  int error = 0;
  bool published = false;
  {
    ring.prefetch_slot();
    const std::lock_guard lock(qp.send_lock);
    const bool ready = takes_sends(transport::state_of(qp.transport_qp));
    for (; wr != nullptr; wr = wr->next) {
      transport::SendWqe* const wqe = ready ? ring.prepare() : nullptr;
      if (wr->next != nullptr) ring.prefetch_next_slot();
      if (wqe == nullptr)
        error = ready ? ENOMEM : EINVAL;
      else
        error = build_send(qp, *wr, *wqe);
      if (error != 0) {
        if (bad_wr != nullptr) *bad_wr = wr;
        break;
      }
      probes::post(qp.qp_base.qp_num, wqe->wr_id, static_cast<uint8_t>(wqe->opcode), wqe->length_bytes);
      ring.advance();
      published = true;
    }
    if (published) ring.publish();
  }
  if (published) announce_sends(qp);
  return error;
}

}  // namespace faultline::verbs
