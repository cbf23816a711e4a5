// SPDX-License-Identifier: BSD-3-Clause
// Posting with a scenario: any request of a chain may fail, in the call or later as a completion.
#include <array>

#include "stack/verbs/post/work_request.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

namespace {

using trouble::EventKind;

/// Names of ibv_wr_opcode, as in its enumerators.
std::string_view opcode_name(uint32_t opcode) {
  constexpr std::array<std::string_view, 16> kNames{"RDMA_WRITE",
                                                    "RDMA_WRITE_WITH_IMM",
                                                    "SEND",
                                                    "SEND_WITH_IMM",
                                                    "RDMA_READ",
                                                    "ATOMIC_CMP_AND_SWP",
                                                    "ATOMIC_FETCH_AND_ADD",
                                                    "LOCAL_INV",
                                                    "BIND_MW",
                                                    "SEND_WITH_INV",
                                                    "TSO",
                                                    "DRIVER1",
                                                    "UNKNOWN",
                                                    "UNKNOWN",
                                                    "FLUSH",
                                                    "ATOMIC_WRITE"};
  return opcode < kNames.size() ? kNames[opcode] : "UNKNOWN";
}

uint64_t length_bytes_of(const ibv_send_wr& wr) {
  uint64_t bytes = 0;
  for (int i = 0; wr.sg_list != nullptr && i < wr.num_sge; ++i) bytes += wr.sg_list[i].length;
  return bytes;
}

/// The region of a request is that of its first element.
EventRegion region_of(const ibv_send_wr& wr) {
  if (wr.num_sge == 0 || wr.sg_list == nullptr || (wr.send_flags & IBV_SEND_INLINE) != 0) return {};
  return {wr.sg_list[0].lkey, wr.sg_list[0].addr};
}

/// Returns the status with which a send fails; 0: it does not.
uint32_t status_of(const ibv_qp* qp, uint32_t opcode, uint64_t bytes, const EventRegion& region) {
  const trouble::Action* const action =
      decide(EventKind::send, opcode_name(opcode), concerned_by(qp), bytes, region);
  return action == nullptr ? 0 : action->number;
}

/// The requester fails the request at its turn, after the earlier ones (IBA 10.8.3.1).
void make_fail(transport::SendWqe& wqe, uint32_t status) {
  wqe.opcode = transport::SendOpcode::made_to_fail;
  wqe.rkey = status;
  wqe.flags = IBV_SEND_SIGNALED;
  wqe.sge_count = 0;
  wqe.length_bytes = 0;
}

int post_failing(Qp& qp, const ibv_send_wr& wr, uint32_t status) {
  transport::SendRing& ring = *qp.send_ring;
  {
    const std::lock_guard lock(qp.send_lock);
    if (!takes_sends(transport::state_of(qp.transport_qp))) return EINVAL;
    transport::SendWqe* const wqe = ring.prepare();
    if (wqe == nullptr) return ENOMEM;
    *wqe = {};
    wqe->wr_id = wr.wr_id;
    make_fail(*wqe, status);
    ring.advance();
    ring.publish();
  }
  announce_sends(qp);
  return 0;
}

int post_one(ibv_qp* qp, const ibv_send_wr& wr) {
  const uint64_t bytes = length_bytes_of(wr);
  if (const int error = trouble_of("ibv_post_send", qp, bytes); error != 0) return error;
  if (const uint32_t status = status_of(qp, uint32_t{load_once(wr.opcode)}, bytes, region_of(wr));
      status != 0)
    return post_failing(qp_of(qp), wr, status);
  ibv_send_wr alone = wr;
  alone.next = nullptr;
  ibv_send_wr* bad = nullptr;
  return post_send(qp, &alone, &bad);
}

}  // namespace

int post_send_in_trouble(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  for (; wr != nullptr; wr = wr->next)
    if (const int error = post_one(qp, *wr); error != 0) {
      if (bad_wr != nullptr) *bad_wr = wr;
      return error;
    }
  return 0;
}

namespace {

/// No region has this key: a message that needs the receive's memory fails, as with a wrong key of the
/// program. The transport then takes the status from the element's address.
ibv_sge made_to_fail(uint32_t status) {
  return {status, static_cast<uint32_t>(kMaxMessageBytes), transport::kMadeToFailKey};
}

/// Posts requests one by one: each may be made to fail when a message fills it. `post` takes a chain.
template <typename Queue, typename Post>
int post_receives(Queue* queue, ibv_recv_wr* wr, ibv_recv_wr** bad_wr, uint32_t max_sge, Post post) {
  for (; wr != nullptr; wr = wr->next) {
    uint64_t bytes = 0;
    for (int i = 0; wr->sg_list != nullptr && i < wr->num_sge; ++i) bytes += wr->sg_list[i].length;
    ibv_recv_wr alone = *wr;
    alone.next = nullptr;
    ibv_sge unusable{};
    EventRegion region;
    if (wr->sg_list != nullptr && wr->num_sge != 0) region = {wr->sg_list[0].lkey, wr->sg_list[0].addr};
    const trouble::Action* const action = decide(EventKind::receive, {}, concerned_by(queue), bytes, region);
    if (action != nullptr && max_sge != 0) {
      unusable = made_to_fail(action->number);
      alone.sg_list = &unusable;
      alone.num_sge = 1;
    }
    ibv_recv_wr* bad = nullptr;
    if (const int error = post(queue, &alone, &bad); error != 0) {
      if (bad_wr != nullptr) *bad_wr = wr;
      return error;
    }
  }
  return 0;
}

}  // namespace

int post_recv_in_trouble(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  if (const int error = trouble_of("ibv_post_recv", qp); error != 0) {
    if (bad_wr != nullptr) *bad_wr = wr;
    return error;
  }
  if (!trouble::director()->concerns(EventKind::receive) || qp_of(qp).receive_ring == nullptr)
    return post_recv(qp, wr, bad_wr);
  return post_receives(qp, wr, bad_wr, qp_of(qp).receive_ring->max_sge(), post_recv);
}

int post_srq_recv_in_trouble(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  if (const int error = trouble_of("ibv_post_srq_recv", srq); error != 0) {
    if (bad_wr != nullptr) *bad_wr = wr;
    return error;
  }
  if (!trouble::director()->concerns(EventKind::receive)) return post_srq_recv(srq, wr, bad_wr);
  const uint32_t max_sge = transport::receive_ring_of(srq_of(srq).transport_srq).max_sge();
  return post_receives(srq, wr, bad_wr, max_sge, post_srq_recv);
}

void make_requests_fail(Qp& qp, uint32_t first, uint32_t end) {
  for (uint32_t index = first; index != end; ++index) {
    transport::SendWqe& wqe = *qp.send_ring->header_at(index);
    EventRegion region;
    if (wqe.sge_count != 0) {
      const transport::Sge& element = qp.send_ring->sges_of(&wqe)[0];
      region = {element.lkey, element.va};
    }
    const uint32_t status =
        status_of(&qp.qp_base, static_cast<uint32_t>(wqe.opcode), wqe.length_bytes, region);
    if (status != 0) make_fail(wqe, status);
  }
}

}  // namespace faultline::verbs
