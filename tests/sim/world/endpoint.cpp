// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/world/endpoint.hpp"

#include <algorithm>
#include <array>

#include "stack/transport/qp/queue_pair.hpp"
#include "stack/transport/qp/shared_receive_queue.hpp"
#include "tests/sim/world/take_to_rts.hpp"

namespace faultline::sim {

using namespace transport;

uint32_t SendRequest::length_bytes() const {
  if ((flags & kInline) != 0) return static_cast<uint32_t>(inline_data.size());
  uint32_t total = 0;
  for (const Sge& sge : sges) total += sge.length_bytes;
  return total;
}

Endpoint::Endpoint(World& world, SimHost& host, const EndpointScript& script, CompletionQueue* shared)
    : world_(world), host_(host), send_cq_(shared), receive_cq_(shared) {
  if (shared == nullptr) {
    own_send_cq_ = std::make_unique<CompletionQueue>(script.max_send_wr + 1);
    own_receive_cq_ = std::make_unique<CompletionQueue>(script.max_receive_wr + 1);
    send_cq_ = own_send_cq_.get();
    receive_cq_ = own_receive_cq_.get();
  }
  QpInit& init = init_;
  init.type = script.type;
  init.domain = script.domain;
  init.send_cq = send_cq_;
  init.receive_cq = receive_cq_;
  init.max_send_wr = script.max_send_wr;
  init.max_receive_wr = script.max_receive_wr;
  init.max_send_sge = init.max_receive_sge = 4;
  init.max_inline_bytes = script.max_inline_bytes;
  init.signal_all = script.signal_all;
  srq_ = script.srq;
  owns_srq_ = script.own_srq;
  if (owns_srq_) {
    srq_ = host.core().create_srq({.domain = script.domain,
                                   .max_wr = script.max_receive_wr,
                                   .max_sge = 4,
                                   .cq = receive_cq_,
                                   .xrc_domain = script.xrc_domain});
  }
  // Packets of XRC name their queue.
  if (script.type != transport::QpType::xrc_recv) init.srq = srq_;
  init.xrc_domain = script.xrc_domain;
  qp_ = host.core().create_qp(init);
}

bool Endpoint::post_send(const SendRequest& request) {
  SendRing& ring = send_ring_of(qp_);
  SendWqe* wqe = ring.prepare();
  if (wqe == nullptr) return false;
  *wqe = SendWqe{};
  wqe->wr_id = request.wr_id;
  wqe->remote_va = request.remote_va;
  wqe->rkey = request.rkey;
  wqe->immediate_or_rkey = request.immediate;
  wqe->length_bytes = request.length_bytes();
  wqe->opcode = request.opcode;
  wqe->flags = request.flags;
  wqe->ud_qpn = request.ud_qpn;
  wqe->ud_qkey = request.ud_qkey;
  if ((request.flags & kInline) != 0) {
    wqe->inline_bytes = static_cast<uint16_t>(request.inline_data.size());
    std::copy(request.inline_data.begin(), request.inline_data.end(), ring.inline_of(wqe));
  } else {
    wqe->sge_count = static_cast<uint8_t>(request.sges.size());
    std::copy(request.sges.begin(), request.sges.end(), ring.sges_of(wqe));
  }
  if (request.srq_number != 0) wqe->srq_number = request.srq_number;
  if (request.fill) request.fill(*wqe);
  if (request.ud_qpn != 0) ring.av_of(wqe) = request.av;
  ring.advance();
  ring.publish();
  if (posts_as_owner_)
    host_.core().send_posted(qp_, world_.now());
  else
    host_.core().ring_doorbell(qp_);
  return true;
}

bool Endpoint::post_receive(uint64_t wr_id, const std::vector<Sge>& sges) {
  ReceiveRing& ring = srq_ != nullptr ? receive_ring_of(srq_) : receive_ring_of(qp_);
  ReceiveWqe* wqe = ring.prepare();
  if (wqe == nullptr) return false;
  *wqe = ReceiveWqe{};
  wqe->wr_id = wr_id;
  wqe->sge_count = static_cast<uint32_t>(sges.size());
  for (const Sge& sge : sges) wqe->length_bytes += sge.length_bytes;
  std::copy(sges.begin(), sges.end(), ring.sges_of(wqe));
  ring.advance();
  ring.publish();
  host_.core().ring_doorbell(qp_);
  return true;
}

std::vector<Completion> Endpoint::drain(CompletionQueue& cq) {
  std::vector<Completion> all;
  std::array<Completion, 16> some;
  while (const uint32_t got = cq.poll(some)) all.insert(all.end(), some.begin(), some.begin() + got);
  return all;
}

bool Endpoint::all_sends_retired() const {
  const SendRing& ring = send_ring_of(qp_);
  return ring.head() == ring.tail();
}

int Endpoint::modify(const QpAttributes& attributes, uint32_t mask) {
  return host_.core().modify_qp(qp_, attributes, mask, world_.now());
}

int Endpoint::take_to_rts(const QpAttributes& attributes) {
  return sim::take_to_rts(host_.core(), qp_, attributes, world_.now());
}

bool Endpoint::reset() {
  QpAttributes attributes;
  attributes.state = QpState::reset;
  return modify(attributes, kAttrState) == 0;
}

void Endpoint::renew() {
  host_.core().destroy_qp(qp_);
  qp_ = host_.core().create_qp(init_);
}

void Endpoint::destroy() {
  host_.core().destroy_qp(qp_);
  qp_ = nullptr;
  if (owns_srq_) host_.core().destroy_srq(srq_);
  srq_ = nullptr;
}

bool connect_end(World& world, Endpoint& end, const Endpoint& peer, const ConnectionScript& script,
                 uint32_t own_psn, uint32_t peer_psn) {
  QpAttributes attributes;
  attributes.access_flags = script.access_flags;
  attributes.av = world.path(end.host(), peer.host());
  attributes.path_mtu = script.path_mtu;
  attributes.destination_qpn = peer.qpn();
  attributes.rq_psn = peer_psn;
  attributes.sq_psn = own_psn;
  attributes.max_rd_atomic = attributes.max_dest_rd_atomic = script.max_rd_atomic;
  attributes.min_rnr_timer = script.min_rnr_timer;
  attributes.timeout = script.timeout;
  attributes.retry_count = script.retry_count;
  attributes.rnr_retry = script.rnr_retry;
  return end.take_to_rts(attributes) == 0;
}

bool connect(World& world, Endpoint& a, Endpoint& b, const ConnectionScript& script) {
  return connect_end(world, a, b, script, script.psn_a, script.psn_b) &&
         connect_end(world, b, a, script, script.psn_b, script.psn_a);
}

bool activate_datagram(Endpoint& end, uint32_t qkey, uint32_t psn) {
  QpAttributes attributes;
  attributes.qkey = qkey;
  attributes.sq_psn = psn;
  return end.take_to_rts(attributes) == 0;
}

}  // namespace faultline::sim
