// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/post/work_request.hpp"

#include <cstring>

#include "stack/verbs/device/address.hpp"

namespace faultline::verbs {

int append_inline(transport::SendRing& ring, transport::SendWqe& wqe, const void* from, size_t bytes) {
  if (bytes > ring.max_inline_bytes() - wqe.inline_bytes) return EINVAL;
  if (bytes != 0) std::memcpy(ring.inline_of(&wqe) + wqe.inline_bytes, from, bytes);
  wqe.inline_bytes = static_cast<uint16_t>(wqe.inline_bytes + bytes);
  wqe.length_bytes = wqe.inline_bytes;
  return 0;
}

int copy_inline(transport::SendRing& ring, transport::SendWqe& wqe, const ibv_sge* list, uint32_t count) {
  if (list == nullptr && count != 0) return EINVAL;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t element_bytes = load_once(list[i].length);
    const auto* const from = reinterpret_cast<const void*>(load_once(list[i].addr));
    if (const int error = append_inline(ring, wqe, from, element_bytes); error != 0) return error;
  }
  return 0;
}

int set_ud_destination(const Qp& qp, transport::SendWqe& wqe, const ibv_ah* handle, uint32_t remote_qpn,
                       uint32_t remote_qkey) {
  constexpr uint32_t kOwnQkey = 1U << 31;
  if (handle == nullptr || !same_domain(handle->pd, qp.qp_base.pd) || remote_qpn > wire::kQpnMask)
    return EINVAL;
  const Ah& ah = *static_cast<const Ah*>(handle);
  wqe.ud_qpn = remote_qpn;
  // IBA 10.2.5: a Q_Key with its high bit set selects the QP's own, which only a privileged program may set.
  wqe.ud_qkey = (remote_qkey & kOwnQkey) != 0 ? qp.qkey : remote_qkey;
  transport::AddressVector& av = qp.send_ring->av_of(&wqe);
  av = ah.av;
  if (!ah.port_from_flow_label) av.path.udp_source_port = udp_source_port(0, qp.qp_base.qp_num, remote_qpn);
  return 0;
}

int set_bind(const Qp& qp, transport::SendWqe& wqe, const ibv_mw& mw, uint32_t new_rkey,
             const ibv_mw_bind_info& info) {
  constexpr uint32_t kVariantMask = 0xff;
  // Windows serve peers, so local write is ignored; programs pass it together with remote write.
  constexpr uint32_t kWindowAccess = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | odp::kFlushGlobal;
  if (!is_live(&mw) || !same_domain(mw.pd, qp.qp_base.pd) || ((mw.rkey ^ new_rkey) & ~kVariantMask) != 0)
    return EINVAL;
  if ((info.mw_access_flags & ~(kWindowAccess | uint32_t{IBV_ACCESS_LOCAL_WRITE})) != 0) return EINVAL;
  if (info.mr == nullptr) {
    // A bind unbinds only a type 1 window; a type 2 window is invalidated (ibv_alloc_mw(3)).
    if (mw.type != IBV_MW_TYPE_1 || info.length != 0) return EINVAL;
  } else if (!is_live(info.mr) || !same_domain(info.mr->pd, qp.qp_base.pd)) {
    return EINVAL;
  }
  wqe.remote_va = info.addr;
  wqe.rkey = mw.rkey;
  wqe.immediate_or_rkey = new_rkey;
  wqe.window_type = static_cast<uint8_t>(mw.type);
  wqe.bind_lkey = info.mr == nullptr ? 0 : info.mr->lkey;
  wqe.bind_access = info.mw_access_flags & kWindowAccess;
  wqe.bind_length_bytes = info.length;
  return 0;
}

}  // namespace faultline::verbs
