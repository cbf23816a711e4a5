// SPDX-License-Identifier: BSD-3-Clause
// post_send and post_recv. A work request lies in memory that other threads of the program can change while
// it is read: every field is loaded once, what was loaded is checked, and what was checked goes into the QP's
// ring (CVE-2026-74378).
#include <cstring>

#include <endian.h>

#include "stack/verbs/address.hpp"
#include "stack/verbs/limits.hpp"
#include "stack/verbs/objects.hpp"

namespace faultline::verbs {

namespace {

/// One load that the compiler can neither repeat nor split.
template <typename T>
T load_once(const T& from) {
  T value;
  __atomic_load(&from, &value, __ATOMIC_RELAXED);
  return value;
}

constexpr uint32_t kKnownSendFlags =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

/// How far a QP's type supports an opcode: what other types or later versions mean is not "invalid".
int check_opcode(ibv_qp_type type, uint32_t opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      return 0;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
      return type == IBV_QPT_RC ? 0 : EINVAL;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_LOCAL_INV:
    case IBV_WR_BIND_MW:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_ATOMIC_WRITE:
      return type == IBV_QPT_RC ? EOPNOTSUPP : EINVAL;
    default:
      return EINVAL;
  }
}

/// Copies the elements; their total goes to `length_bytes`.
int copy_sges(const ibv_sge* list, uint32_t count, transport::Sge* to, uint32_t& length_bytes) {
  uint64_t total_bytes = 0;
  for (uint32_t i = 0; i < count; ++i) {
    to[i].va = load_once(list[i].addr);
    to[i].lkey = load_once(list[i].lkey);
    const uint32_t element_bytes = load_once(list[i].length);
    to[i].length_bytes = element_bytes;
    total_bytes += element_bytes;
  }
  if (total_bytes > kMaxMessageBytes) return EINVAL;
  length_bytes = static_cast<uint32_t>(total_bytes);
  return 0;
}

int copy_inline(const ibv_sge* list, uint32_t count, std::span<uint8_t> to, uint32_t& length_bytes) {
  size_t used_bytes = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t element_bytes = load_once(list[i].length);
    if (element_bytes > to.size() - used_bytes) return EINVAL;
    if (element_bytes != 0)
      std::memcpy(to.data() + used_bytes, reinterpret_cast<const void*>(load_once(list[i].addr)),
                  element_bytes);
    used_bytes += element_bytes;
  }
  length_bytes = static_cast<uint32_t>(used_bytes);
  return 0;
}

int copy_ud_destination(const Qp& qp, const ibv_send_wr& wr, transport::SendWqe& wqe,
                        transport::AddressVector& av) {
  constexpr uint32_t kOwnQkey = 1U << 31;
  const ibv_ah* const handle = load_once(wr.wr.ud.ah);
  if (handle == nullptr || handle->pd != qp.pd) return EINVAL;
  const Ah& ah = *static_cast<const Ah*>(handle);
  wqe.ud_qpn = load_once(wr.wr.ud.remote_qpn);
  if (wqe.ud_qpn > wire::kQpnMask) return EINVAL;
  // IBA 10.2.5: a Q_Key with its high bit set means the QP's own, which only a privileged program may set.
  const uint32_t qkey = load_once(wr.wr.ud.remote_qkey);
  wqe.ud_qkey = (qkey & kOwnQkey) != 0 ? qp.qkey : qkey;
  av = ah.av;
  if (!ah.port_from_flow_label) av.path.udp_source_port = udp_source_port(0, qp.qp_num, wqe.ud_qpn);
  return 0;
}

int build_send(Qp& qp, const ibv_send_wr& wr, transport::SendWqe& wqe) {
  transport::SendRing& ring = *qp.send_ring;
  const uint32_t opcode = static_cast<uint32_t>(load_once(wr.opcode));
  const uint32_t flags = load_once(wr.send_flags);
  const uint32_t sge_count = static_cast<uint32_t>(load_once(wr.num_sge));  // negative: too many
  const ibv_sge* const list = load_once(wr.sg_list);
  if (const int error = check_opcode(qp.qp_type, opcode); error != 0) return error;
  if ((flags & ~kKnownSendFlags) != 0 || sge_count > kMaxSge) return EINVAL;
  const bool is_read = opcode == IBV_WR_RDMA_READ;
  const bool is_inline = (flags & IBV_SEND_INLINE) != 0;
  if (is_read && (is_inline || qp.max_rd_atomic == 0)) return EINVAL;

  if (is_inline) {
    const std::span room(ring.inline_of(&wqe), ring.max_inline_bytes());
    if (const int error = copy_inline(list, sge_count, room, wqe.length_bytes); error != 0) return error;
    wqe.sge_count = 0;
    wqe.inline_bytes = static_cast<uint16_t>(wqe.length_bytes);
  } else {
    if (sge_count > ring.max_sge()) return EINVAL;
    if (const int error = copy_sges(list, sge_count, ring.sges_of(&wqe), wqe.length_bytes); error != 0)
      return error;
    wqe.sge_count = static_cast<uint8_t>(sge_count);
    wqe.inline_bytes = 0;
  }
  wqe.wr_id = load_once(wr.wr_id);
  wqe.opcode = static_cast<transport::SendOpcode>(opcode);
  wqe.flags = static_cast<uint8_t>(flags);
  wqe.immediate_or_rkey = be32toh(load_once(wr.imm_data));
  if (qp.qp_type == IBV_QPT_UD) return copy_ud_destination(qp, wr, wqe, ring.av_of(&wqe));
  wqe.remote_va = load_once(wr.wr.rdma.remote_addr);
  wqe.rkey = load_once(wr.wr.rdma.rkey);
  return 0;
}

int build_receive(const Qp& qp, const ibv_recv_wr& wr, transport::ReceiveWqe& wqe) {
  transport::ReceiveRing& ring = *qp.receive_ring;
  const uint32_t sge_count = static_cast<uint32_t>(load_once(wr.num_sge));
  if (sge_count > ring.max_sge()) return EINVAL;
  wqe.wr_id = load_once(wr.wr_id);
  wqe.sge_count = sge_count;
  return copy_sges(load_once(wr.sg_list), sge_count, ring.sges_of(&wqe), wqe.length_bytes);
}

/// Faults a posted receive's pages in ahead of the data.
void hint_receive(const Qp& qp, const Pd& pd, transport::ReceiveWqe& wqe) {
  const transport::Sge* const sges = qp.receive_ring->sges_of(&wqe);
  for (uint32_t i = 0; i < wqe.sge_count; ++i)
    qp.engine->backend->memory().hint_will_write({sges[i].lkey, pd.domain, odp::kLocalWrite}, sges[i].va,
                                                 sges[i].length_bytes);
}

/// IBA 10.8.3.1, table 91: not before RTS; in the error states work is taken and flushed.
bool takes_sends(transport::QpState state) {
  return state >= transport::QpState::rts;
}

}  // namespace

int post_send(ibv_qp* ibv_qp_pointer, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Qp& qp = qp_of(ibv_qp_pointer);
  transport::SendRing& ring = *qp.send_ring;
  int error = 0;
  bool published = false;
  {
    const std::lock_guard lock(qp.send_lock);
    const bool ready = takes_sends(transport::state_of(qp.transport_qp));
    for (; wr != nullptr; wr = wr->next) {
      transport::SendWqe* const wqe = ready ? ring.prepare() : nullptr;
      if (wqe == nullptr)
        error = ready ? ENOMEM : EINVAL;
      else
        error = build_send(qp, *wr, *wqe);
      if (error != 0) {
        *bad_wr = wr;
        break;
      }
      ring.advance();
      published = true;
    }
    if (published) ring.publish();
  }
  if (published) qp.engine->backend->core().ring_doorbell(qp.transport_qp);
  return error;
}

int post_recv(ibv_qp* ibv_qp_pointer, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Qp& qp = qp_of(ibv_qp_pointer);
  const Pd& pd = pd_of(qp.pd);
  transport::ReceiveRing& ring = *qp.receive_ring;
  const bool hints = pd.odp_regions.load(std::memory_order_relaxed) != 0;
  int error = 0;
  bool published = false;
  {
    const std::lock_guard lock(qp.receive_lock);
    const bool ready = transport::state_of(qp.transport_qp) != transport::QpState::reset;
    for (; wr != nullptr; wr = wr->next) {
      transport::ReceiveWqe* const wqe = ready ? ring.prepare() : nullptr;
      if (wqe == nullptr)
        error = ready ? ENOMEM : EINVAL;
      else
        error = build_receive(qp, *wr, *wqe);
      if (error != 0) {
        *bad_wr = wr;
        break;
      }
      if (hints) hint_receive(qp, pd, *wqe);
      ring.advance();
      published = true;
    }
    if (published) ring.publish();
  }
  if (published) qp.engine->backend->core().ring_doorbell(qp.transport_qp);
  return error;
}

}  // namespace faultline::verbs
