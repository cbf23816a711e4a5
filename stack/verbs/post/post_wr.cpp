// SPDX-License-Identifier: BSD-3-Clause
// ibv_wr_*: builds work requests in place. ibv_wr_start takes the QP's lock, and ibv_wr_complete or
// ibv_wr_abort releases it. The first error is kept and later calls are ignored; complete then posts nothing
// (ibv_wr_post(3)).
#include <endian.h>

#include "stack/base/probes.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/send_rules.hpp"
#include "stack/verbs/post/work_request.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

namespace {

using transport::SendWqe;

void refuse(Qp& qp, int error) {
  if (qp.build_error == 0) qp.build_error = error;
  qp.building = nullptr;
}

/// Checks the request under construction and advances the ring.
void finish(Qp& qp) {
  if (qp.building == nullptr) return;
  const bool needs_address = qp.qp_base.qp_type == IBV_QPT_UD || qp.qp_base.qp_type == IBV_QPT_XRC_SEND;
  const bool carries = send_rule_of(static_cast<uint32_t>(qp.building->opcode)).payload != Payload::none;
  if (needs_address && carries && !qp.addressed) return refuse(qp, EINVAL);
  if (const int error = check_wqe(qp, *qp.building); error != 0) return refuse(qp, error);
  probes::post(qp.qp_base.qp_num, qp.building->wr_id, static_cast<uint8_t>(qp.building->opcode),
               qp.building->length_bytes);
  qp.send_ring->advance();
  qp.building = nullptr;
}

/// Begins a request; returns nullptr if an earlier error is pending or the ring is full.
SendWqe* begin(Qp& qp, uint32_t opcode) {
  finish(qp);
  if (qp.build_error != 0) return nullptr;
  qp.building = qp.send_ring->prepare();
  if (qp.building == nullptr) {
    refuse(qp, ENOMEM);
    return nullptr;
  }
  SendWqe& wqe = *qp.building;
  wqe = {};
  wqe.wr_id = qp.wr_id;
  wqe.opcode = static_cast<transport::SendOpcode>(opcode);
  // The setter determines whether the data is inline.
  wqe.flags = static_cast<uint8_t>(qp.wr_flags & ~uint32_t{IBV_SEND_INLINE});
  qp.addressed = false;
  if ((qp.wr_flags & ~kKnownSendFlags) != 0 || !send_rule_of(opcode).allowed_on(qp.qp_base.qp_type))
    refuse(qp, EINVAL);
  return qp.building;
}

SendWqe* begin_remote(Qp& qp, uint32_t opcode, uint32_t rkey, uint64_t remote_va) {
  SendWqe* const wqe = begin(qp, opcode);
  if (wqe == nullptr) return nullptr;
  wqe->rkey = rkey;
  wqe->remote_va = remote_va;
  return wqe;
}

// --- builders ---

void wr_send(ibv_qp_ex* qp) {
  begin(qp_of(qp), IBV_WR_SEND);
}

void wr_send_imm(ibv_qp_ex* qp, __be32 immediate) {
  if (SendWqe* const wqe = begin(qp_of(qp), IBV_WR_SEND_WITH_IMM))
    wqe->immediate_or_rkey = be32toh(immediate);
}

void wr_send_inv(ibv_qp_ex* qp, uint32_t rkey) {
  if (SendWqe* const wqe = begin(qp_of(qp), IBV_WR_SEND_WITH_INV)) wqe->immediate_or_rkey = rkey;
}

void wr_send_tso(ibv_qp_ex* qp, void* /*header*/, uint16_t /*header_bytes*/, uint16_t /*mss*/) {
  refuse(qp_of(qp), EOPNOTSUPP);
}

void wr_rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_va) {
  begin_remote(qp_of(qp), IBV_WR_RDMA_READ, rkey, remote_va);
}

void wr_rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_va) {
  begin_remote(qp_of(qp), IBV_WR_RDMA_WRITE, rkey, remote_va);
}

void wr_rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_va, __be32 immediate) {
  if (SendWqe* const wqe = begin_remote(qp_of(qp), IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_va))
    wqe->immediate_or_rkey = be32toh(immediate);
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_va, uint64_t compare, uint64_t swap) {
  SendWqe* const wqe = begin_remote(qp_of(qp), IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_va);
  if (wqe == nullptr) return;
  wqe->compare = compare;
  wqe->swap_or_add = swap;
}

void wr_atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_va, uint64_t add) {
  if (SendWqe* const wqe = begin_remote(qp_of(qp), IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_va))
    wqe->swap_or_add = add;
}

void wr_local_inv(ibv_qp_ex* qp, uint32_t rkey) {
  if (SendWqe* const wqe = begin(qp_of(qp), IBV_WR_LOCAL_INV)) wqe->immediate_or_rkey = rkey;
}

/// Unlike a posted bind, does not change mw->rkey, because an abort would have to undo the change.
void wr_bind_mw(ibv_qp_ex* qp_pointer, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
  Qp& qp = qp_of(qp_pointer);
  SendWqe* const wqe = begin(qp, IBV_WR_BIND_MW);
  if (wqe == nullptr) return;
  ibv_mw_bind_info copy{};
  if (info == nullptr || !is_live(mw)) return refuse(qp, EINVAL);
  copy.mr = load_once(info->mr);
  copy.addr = load_once(info->addr);
  copy.length = load_once(info->length);
  copy.mw_access_flags = load_once(info->mw_access_flags);
  const int error = mw->type == IBV_MW_TYPE_2 ? set_bind(qp, *wqe, *mw, rkey, copy) : EINVAL;
  if (error != 0) refuse(qp, error);
}

void append_bytes(Qp& qp, const void* from, size_t bytes) {
  SendWqe* const wqe = qp.building;
  if (wqe == nullptr) return;
  if (wqe->sge_count != 0) return refuse(qp, EINVAL);
  wqe->flags |= IBV_SEND_INLINE;
  if (const int error = append_inline(*qp.send_ring, *wqe, from, bytes); error != 0) refuse(qp, error);
}

void wr_atomic_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_va, const void* bytes) {
  if (begin_remote(qp_of(qp), IBV_WR_ATOMIC_WRITE, rkey, remote_va) != nullptr)
    append_bytes(qp_of(qp), bytes, sizeof(uint64_t));
}

/// Builds a FLUSH (IBA A19) of a range or a whole region, global or persistent.
void wr_flush(ibv_qp_ex* qp_pointer, uint32_t rkey, uint64_t remote_va, size_t length_bytes, uint8_t type,
              uint8_t level) {
  constexpr uint8_t kKnownTypes = 3;
  constexpr uint8_t kWholeRegion = 1;
  Qp& qp = qp_of(qp_pointer);
  SendWqe* const wqe = begin_remote(qp, kOpcodeFlush, rkey, remote_va);
  if (wqe == nullptr) return;
  const bool valid =
      type != 0 && (type & ~kKnownTypes) == 0 && level <= kWholeRegion && length_bytes <= UINT32_MAX;
  if (!valid) return refuse(qp, EINVAL);
  wqe->length_bytes = static_cast<uint32_t>(length_bytes);
  wqe->flush_placement = type;
  wqe->flush_selectivity = level;
}

// --- setters ---

void wr_set_ud_addr(ibv_qp_ex* qp_pointer, ibv_ah* ah, uint32_t remote_qpn, uint32_t remote_qkey) {
  Qp& qp = qp_of(qp_pointer);
  if (qp.building == nullptr) return;
  if (qp.qp_base.qp_type != IBV_QPT_UD) return refuse(qp, EINVAL);
  if (const int error = set_ud_destination(qp, *qp.building, ah, remote_qpn, remote_qkey); error != 0)
    return refuse(qp, error);
  qp.addressed = true;
}

void wr_set_xrc_srqn(ibv_qp_ex* qp_pointer, uint32_t number) {
  Qp& qp = qp_of(qp_pointer);
  if (qp.building == nullptr) return;
  if (qp.qp_base.qp_type != IBV_QPT_XRC_SEND || number > wire::kQpnMask) return refuse(qp, EINVAL);
  qp.building->srq_number = number;
  qp.addressed = true;
}

void wr_set_sge_list(ibv_qp_ex* qp_pointer, size_t count, const ibv_sge* list) {
  Qp& qp = qp_of(qp_pointer);
  SendWqe* const wqe = qp.building;
  if (wqe == nullptr) return;
  if (count > qp.send_ring->max_sge()) return refuse(qp, EINVAL);
  // Inline data occupies the elements' memory, and its length would be overwritten.
  if ((wqe->flags & IBV_SEND_INLINE) != 0) return refuse(qp, EINVAL);
  wqe->sge_count = static_cast<uint8_t>(count);
  const int error =
      copy_sges(list, static_cast<uint32_t>(count), qp.send_ring->sges_of(wqe), wqe->length_bytes);
  if (error != 0) refuse(qp, error);
}

void wr_set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length_bytes) {
  const ibv_sge sge{address, length_bytes, lkey};
  wr_set_sge_list(qp, 1, &sge);
}

void wr_set_inline_data(ibv_qp_ex* qp, void* from, size_t length_bytes) {
  append_bytes(qp_of(qp), from, length_bytes);
}

void wr_set_inline_data_list(ibv_qp_ex* qp_pointer, size_t count, const ibv_data_buf* list) {
  Qp& qp = qp_of(qp_pointer);
  append_bytes(qp, nullptr, 0);  // an empty list counts as inline too
  for (size_t i = 0; i < count; ++i) append_bytes(qp, load_once(list[i].addr), load_once(list[i].length));
}

// --- the critical region ---

void wr_start(ibv_qp_ex* qp_pointer) {
  Qp& qp = qp_of(qp_pointer);
  qp.send_lock.lock();
  qp.building = nullptr;
  qp.build_error = takes_sends(transport::state_of(qp.transport_qp)) ? 0 : EINVAL;
}

int wr_complete(ibv_qp_ex* qp_pointer) {
  Qp& qp = qp_of(qp_pointer);
  finish(qp);
  const int error = qp.build_error;
  if (error == 0)
    qp.send_ring->publish();
  else
    qp.send_ring->discard();
  qp.building = nullptr;
  qp.send_lock.unlock();
  if (error == 0) announce_sends(qp);
  return error;
}

/// wr_complete() with a scenario.
int wr_complete_in_trouble(ibv_qp_ex* qp_pointer) {
  Qp& qp = qp_of(qp_pointer);
  finish(qp);
  if (const int error = trouble_of("ibv_wr_complete", &qp.qp_base); error != 0) refuse(qp, error);
  if (qp.build_error == 0) make_requests_fail(qp, qp.send_ring->tail(), qp.send_ring->advanced());
  return wr_complete(qp_pointer);
}

void wr_abort(ibv_qp_ex* qp_pointer) {
  Qp& qp = qp_of(qp_pointer);
  qp.building = nullptr;
  qp.send_ring->discard();
  qp.send_lock.unlock();
}

}  // namespace

void set_post_functions(Qp& qp) {
  qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
  qp.wr_atomic_write = wr_atomic_write;
  qp.wr_bind_mw = wr_bind_mw;
  qp.wr_local_inv = wr_local_inv;
  qp.wr_rdma_read = wr_rdma_read;
  qp.wr_rdma_write = wr_rdma_write;
  qp.wr_rdma_write_imm = wr_rdma_write_imm;
  qp.wr_send = wr_send;
  qp.wr_send_imm = wr_send_imm;
  qp.wr_send_inv = wr_send_inv;
  qp.wr_send_tso = wr_send_tso;
  qp.wr_flush = wr_flush;
  qp.wr_set_ud_addr = wr_set_ud_addr;
  qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
  qp.wr_set_sge = wr_set_sge;
  qp.wr_set_sge_list = wr_set_sge_list;
  qp.wr_set_inline_data = wr_set_inline_data;
  qp.wr_set_inline_data_list = wr_set_inline_data_list;
  qp.wr_start = wr_start;
  qp.wr_complete = trouble::director() != nullptr ? wr_complete_in_trouble : wr_complete;
  qp.wr_abort = wr_abort;
}

}  // namespace faultline::verbs
