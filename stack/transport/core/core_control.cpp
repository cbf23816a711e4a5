// SPDX-License-Identifier: BSD-3-Clause
// Control calls of the owner thread between turns: creation, modification and destruction of QPs, shared
// receive queues and multicast groups.
#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>

#include "stack/transport/context/recorder.hpp"
#include "stack/transport/core/core_impl.hpp"
#include "stack/transport/qp/qp_state.hpp"
#include "stack/transport/qp/shared_receive_queue.hpp"
#include "stack/wire/packet/ecn.hpp"

namespace faultline::transport {

namespace {
constexpr size_t kFirstListed = 64;

/// `code` is of ibv_modify_qp(3): 4.096 us * 2^code, 0 for none.
TimeNs ack_timeout_of(uint8_t code, TimeNs least_ns) {
  return code == 0 ? 0 : std::max(TimeNs{4096} << code, least_ns);
}

void note_completions_of(const QpInit& init) {
  for (CompletionQueue* const cq : {init.send_cq, init.receive_cq})
    if (cq != nullptr && !cq->is_noted) cq->is_noted = true;
}
}  // namespace

QueuePair* Core::create_qp(const QpInit& init) {
  try {
    // Reserves room for the QPN's return, so that destroy cannot fail.
    impl_->qpns.reserve();
    if (impl_->list.size() == impl_->list.capacity())
      impl_->list.reserve(std::max<size_t>(kFirstListed, 2 * impl_->list.size()));
    const std::optional<uint32_t> qpn = impl_->qpns.peek();
    if (!qpn) return nullptr;
    QueuePair* const qp = impl_->memory().new_object<QueuePair>(*qpn, init, config_.qp_memory);
    impl_->qpns.take();
    impl_->table[*qpn & impl_->slot_mask] = qp;
    qp->list_index = static_cast<uint32_t>(impl_->list.size());
    impl_->list.push_back(qp);
    if (impl_->context.recorder != nullptr) note_completions_of(init);
    return qp;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Core::destroy_qp(QueuePair* qp) {
  impl_->multicast.forget(qp);
  impl_->take_doorbells();
  impl_->context.ready.remove(*qp);
  impl_->context.timers.disarm(qp->timer);
  impl_->context.paces.disarm(qp->pacing_timer);
  impl_->context.parking.release_parked(*qp);
  impl_->context.parking.release_held(*qp);
  impl_->list[qp->list_index] = impl_->list.back();
  impl_->list[qp->list_index]->list_index = qp->list_index;
  impl_->list.pop_back();
  const uint32_t qpn = qp->qpn;
  impl_->memory().delete_object(qp);
  impl_->table[qpn & impl_->slot_mask] = nullptr;
  impl_->qpns.give_back(qpn);
}

void Core::set_counted(QueuePair* qp, CountedOperations* counted) {
  assert(qp->state_now() == QpState::reset || qp->state_now() == QpState::init);
  qp->counted = counted;
  qp->is_counted = counted != nullptr;
}

void Core::set_status_row(QueuePair* qp, status::RowIndex row) {
  qp->status_row = row;
}

size_t Core::qp_count() const {
  return impl_->list.size();
}

size_t Core::snapshot_qps(std::span<QpSnapshot> snapshots, TimeNs now) {
  const std::vector<QueuePair*>& list = impl_->list;
  size_t filled = 0;
  for (size_t visited = 0; visited < list.size() && filled < snapshots.size(); ++visited) {
    if (impl_->next_snapshot >= list.size()) impl_->next_snapshot = 0;
    QueuePair& qp = *list[impl_->next_snapshot++];
    if (qp.status_row != status::kNoRow) snapshots[filled++] = snapshot_of(qp, config_, now);
  }
  return filled;
}

int Core::modify_qp(QueuePair* qp, const QpAttributes& attributes, uint32_t mask, TimeNs now) {
  const QpState from = qp->state_now();
  const QpState to = (mask & kAttrState) != 0 ? attributes.state : from;
  if (!check_transition(qp->type, from, to, mask)) return EINVAL;
  if ((mask & kAttrCurState) != 0 && (mask & kAttrState) == 0) return EINVAL;
  if ((mask & kAttrMaxDestRdAtomic) != 0) {
    const int refused = Responder::set_resources(*qp, attributes.max_dest_rd_atomic);
    if (refused != 0) return refused;
  }
  if (to == QpState::rtr && qp->type != QpType::ud) {
    try {
      qp->rate_control = make_rate_control(config_.congestion, bytes_of(attributes.path_mtu));
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
  }
  impl_->context.now_ns = now;
  if (to == QpState::err) {
    CoreContext::blame(*qp, status::FailureCause::flushed);
    impl_->context.enter_error(*qp);
    return 0;
  }
  if (to == QpState::reset) {
    impl_->reset(*qp);
    return 0;
  }
  if (from == QpState::sqe) qp->failure = {};
  impl_->apply(*qp, attributes, mask);
  qp->state.store(to, std::memory_order_relaxed);
  impl_->context.make_ready(*qp);
  return 0;
}

void Core::fail_qps(TimeNs now) {
  impl_->context.now_ns = now;
  for (QueuePair* const qp : impl_->table)
    if (qp != nullptr && qp->state_now() != QpState::reset && qp->state_now() != QpState::err) {
      CoreContext::blame(*qp, status::FailureCause::device_lost);
      impl_->context.enter_error(*qp);
    }
}

namespace {

void fail_as_asked(CoreContext& context, QueuePair& qp) {
  if (qp.state_now() == QpState::reset || qp.state_now() == QpState::err) return;
  CoreContext::blame(qp, status::FailureCause::by_scenario);
  context.report(qp, CompletionStatus::general);
  context.enter_error(qp);
  context.raise(qp, AsyncEvent::qp_fatal);
}

}  // namespace

void Core::fail_qp(uint32_t qpn, TimeNs now) {
  impl_->context.now_ns = now;
  if (QueuePair* const qp = impl_->find(qpn); qp != nullptr) fail_as_asked(impl_->context, *qp);
}

void Core::fail_qps_of(const CompletionQueue& cq, TimeNs now) {
  impl_->context.now_ns = now;
  for (QueuePair* const qp : impl_->table)
    if (qp != nullptr && (qp->send_cq == &cq || qp->receive_cq == &cq)) fail_as_asked(impl_->context, *qp);
}

uint32_t Core::qpn_of_peer(const wire::Gid& peer, uint32_t peer_qpn) const {
  for (const QueuePair* const qp : impl_->table)
    if (qp != nullptr && qp->protocol() != Protocol::datagram && qp->attributes.destination_qpn == peer_qpn &&
        qp->attributes.av.path.destination_gid == peer)
      return qp->qpn;
  return 0;
}

std::optional<wire::Psn> Core::first_unanswered(uint32_t qpn) const {
  const QueuePair* const qp = impl_->find(qpn);
  if (qp == nullptr || (qp->state_now() != QpState::rts && qp->state_now() != QpState::sqd))
    return std::nullopt;
  const RequesterState& requester = qp->requester;
  if (requester.unacked_psn == requester.sent_psn) return std::nullopt;
  return requester.unacked_psn;
}

std::optional<wire::Psn> Core::next_request(uint32_t qpn) const {
  const QueuePair* const qp = impl_->find(qpn);
  const bool is_able = qp != nullptr && (qp->type == QpType::rc || qp->type == QpType::xrc_recv) &&
                       can_receive(qp->state_now()) && !qp->responder.closing;
  if (!is_able) return std::nullopt;
  return qp->responder.expected_psn;
}

bool Core::refuse_request(uint32_t qpn, uint8_t syndrome, TimeNs now) {
  impl_->context.now_ns = now;
  QueuePair& qp = *impl_->find(qpn);
  return impl_->responder.refuse_as_asked(qp, syndrome);
}

void Core::Impl::reset(QueuePair& qp) {
  qp.state.store(QpState::reset, std::memory_order_relaxed);
  take_doorbells();
  context.parking.release_parked(qp);
  context.parking.release_held(qp);
  context.timers.disarm(qp.timer);
  context.paces.disarm(qp.pacing_timer);
  qp.rate_control.reset();
  qp.pacing = {};
  qp.cnp_pending = false;
  // Generations continue, so that resolutions of faults from before the reset are recognised as stale.
  const uint32_t requester_generation = qp.requester.fault_generation + 1;
  const uint32_t park_generation = qp.responder.park_generation + 1;
  const uint32_t job_generation = qp.responder.job_generation + 1;
  qp.requester = RequesterState{};
  qp.recovery = RecoveryState{};
  qp.responder = ResponderState{};
  qp.requester.fault_generation = requester_generation;
  qp.responder.park_generation = park_generation;
  qp.responder.job_generation = qp.responder.job_floor = job_generation;
  qp.responder.park_floor = park_generation;
  qp.attributes = QpAttributes{};
  qp.is_over_ipv4 = false;
  qp.communication_established = false;
  qp.lost_completion = false;
  qp.failure = {};
  count_completed_sends(qp);
  qp.completed_before = 0;
  qp.recorded = {};
  qp.send_ring.clear();
  qp.receive_ring.clear();
  qp.receive_taken = false;
}

void Core::Impl::apply(QueuePair& qp, const QpAttributes& attributes, uint32_t mask) {
  QpAttributes& now = qp.attributes;
  if ((mask & kAttrState) != 0) {
    now.state = attributes.state;
    // Each transition to SQD requests the notification anew: one that was pending when the QP returned to RTS
    // is dropped.
    if (attributes.state == QpState::sqd && qp.state_now() != QpState::sqd) now.sqd_notify = false;
  }
  if ((mask & kAttrAccessFlags) != 0) now.access_flags = attributes.access_flags;
  if ((mask & kAttrEnSqdAsyncNotify) != 0) now.sqd_notify = attributes.sqd_notify;
  if ((mask & kAttrQkey) != 0) now.qkey = attributes.qkey;
  if ((mask & kAttrAv) != 0) {
    now.av = attributes.av;
    qp.loopback = attributes.av.loopback;
    wire::PathHeader path = attributes.av.path;
    qp.is_over_ipv4 = path.source_gid.is_ipv4() && path.destination_gid.is_ipv4();
    // ECN marks are useful only if the sender reacts to them (RFC 3168 5).
    if (context.config.congestion.algorithm == CongestionAlgorithm::dcqcn &&
        qp.protocol() != Protocol::datagram)
      path.traffic_class = static_cast<uint8_t>((path.traffic_class & ~wire::kEcnMask) | wire::kEcnCapable);
    qp.frame = wire::FrameTemplate(path, context.config.wire_checksums);
  }
  if ((mask & kAttrPathMtu) != 0) {
    now.path_mtu = attributes.path_mtu;
    qp.mtu_bytes = bytes_of(attributes.path_mtu);
  }
  if ((mask & kAttrTimeout) != 0) {
    now.timeout = attributes.timeout & 0x1f;
    qp.recovery.ack_timeout_ns = ack_timeout_of(now.timeout, context.config.min_ack_timeout_ns);
  }
  if ((mask & kAttrRetryCnt) != 0) qp.requester.retries_left = now.retry_count = attributes.retry_count & 7;
  if ((mask & kAttrRnrRetry) != 0) qp.requester.rnr_retries_left = now.rnr_retry = attributes.rnr_retry & 7;
  if ((mask & kAttrMinRnrTimer) != 0) now.min_rnr_timer = attributes.min_rnr_timer & 0x1f;
  if ((mask & kAttrMaxQpRdAtomic) != 0) now.max_rd_atomic = attributes.max_rd_atomic;
  if ((mask & kAttrMaxDestRdAtomic) != 0) now.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  if ((mask & kAttrDestQpn) != 0) now.destination_qpn = attributes.destination_qpn & wire::kQpnMask;
  if ((mask & kAttrRqPsn) != 0) {
    now.rq_psn = attributes.rq_psn & wire::Psn::kMask;
    qp.responder.expected_psn = wire::Psn(now.rq_psn);
    qp.responder.executed_psns = 0;
  }
  if ((mask & kAttrSqPsn) != 0) {
    now.sq_psn = attributes.sq_psn & wire::Psn::kMask;
    qp.requester.next_psn = qp.requester.unacked_psn = qp.requester.sent_psn = wire::Psn(now.sq_psn);
    qp.first_psn = qp.requester.next_psn;
    qp.recovery.asked_psn = qp.first_psn.minus(1);
  }
  // A datagram QP has no peer; it is known from its first use on.
  const bool names_qp =
      qp.protocol() == Protocol::datagram ? (mask & kAttrQkey) != 0 : (mask & (kAttrAv | kAttrDestQpn)) != 0;
  if (context.recorder != nullptr && names_qp) record_connection(context, qp);
}

SharedReceiveQueue* Core::create_srq(const SrqInit& init) {
  return impl_->context.shared_receives.create(init);
}

int Core::modify_srq(SharedReceiveQueue* srq, const uint32_t* limit, uint32_t max_wr) {
  return modify(*srq, limit, max_wr);
}

void Core::destroy_srq(SharedReceiveQueue* srq) {
  // XRC targets hold no reference to an SRQ, but one may be in the middle of a message to it.
  for (QueuePair* const qp : impl_->table)
    if (qp != nullptr) impl_->context.forget(*qp, *srq);
  impl_->context.shared_receives.destroy(srq);
}

int Core::attach_multicast(QueuePair* qp, const wire::Gid& gid) {
  return qp->type == QpType::ud && gid.is_multicast() ? impl_->multicast.attach(qp, gid) : EINVAL;
}

int Core::detach_multicast(QueuePair* qp, const wire::Gid& gid) {
  return impl_->multicast.detach(qp, gid);
}

void Core::forget_cq(const CompletionQueue& cq) {
  impl_->context.notices.forget(cq);
}

CoreCounters Core::counters() const {
  return impl_->context.counters;
}

// ---- accessors for verbs ----

uint32_t qpn_of(const QueuePair* qp) {
  return qp->qpn;
}
QpState state_of(const QueuePair* qp) {
  return qp->state_now();
}
SendRing& send_ring_of(QueuePair* qp) {
  return qp->send_ring;
}
ReceiveRing& receive_ring_of(QueuePair* qp) {
  return qp->receive_ring;
}

QpAttributes attributes_of(const QueuePair* qp) {
  QpAttributes attributes = qp->attributes;
  attributes.state = qp->state_now();
  attributes.rq_psn = qp->responder.expected_psn.value();
  attributes.sq_psn = qp->requester.next_psn.value();
  attributes.sq_draining = qp->state_now() == QpState::sqd && is_draining(*qp);
  return attributes;
}

}  // namespace faultline::transport
