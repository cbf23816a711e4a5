// SPDX-License-Identifier: BSD-3-Clause
// The core's loop: packets in through the guard ladder, then doorbells, answers, timers and transmission.
#include "stack/transport/core.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <cerrno>
#include <new>
#include <vector>

#include "stack/transport/context.hpp"
#include "stack/transport/datagram.hpp"
#include "stack/transport/management.hpp"
#include "stack/transport/multicast.hpp"
#include "stack/transport/notification.hpp"
#include "stack/transport/qp_state.hpp"
#include "stack/transport/requester.hpp"
#include "stack/transport/responder.hpp"
#include "stack/transport/shared_receive_queue.hpp"
#include "stack/wire/address_filter.hpp"
#include "stack/wire/ecn.hpp"
#include "stack/wire/steering.hpp"

namespace faultline::transport {

namespace {

/// Packets that one QP may send before the next ready one has its turn, and one poll before packets are
/// received again.
constexpr uint32_t kQuantumPackets = 32;
constexpr uint32_t kPollPackets = 128;
/// Ready QPs that have their turn in one poll though the port takes no more: some do not need it, but ten
/// thousand that do must not hold up what is to be received.
constexpr uint32_t kBlockedQps = 1;

wire::Service service_of(QpType type) {
  switch (type) {
    case QpType::rc:
      return wire::Service::rc;
    case QpType::uc:
      return wire::Service::uc;
    case QpType::ud:
      return wire::Service::ud;
    case QpType::xrc_send:
    case QpType::xrc_recv:
      return wire::Service::xrc;
  }
  return wire::Service::rc;
}

/// Acknowledgements of our own kind go to any connected and acknowledged QP.
bool is_ours(wire::Service service, QpType type) {
  return service == wire::Service::manufacturer && (type == QpType::rc || type == QpType::xrc_send);
}

bool can_receive(QpState state) {
  return state == QpState::rtr || state == QpState::rts || state == QpState::sqd || state == QpState::sqe;
}

/// Sends are under way.
bool is_draining(const QueuePair& qp) {
  return qp.type != QpType::ud && qp.send_ring.head() != qp.requester.started;
}

bool can_take_responses(QpState state) {
  return state == QpState::rts || state == QpState::sqd;
}

}  // namespace

struct Core::Impl {
  Impl(const CoreConfig& config, odp::MemoryAccess& memory, Port& port, EventSink* events)
      : context(config, memory, port, events),
        requester(context),
        responder(context),
        datagram(context),
        notification(context),
        management(context),
        table(std::bit_ceil(std::clamp(config.max_qps, 1U, kQpnBlock))),
        slot_mask(static_cast<uint32_t>(table.size()) - 1),
        next_generation(config.first_qpn + config.qpn_seed %
                                               ((config.last_qpn + 1 - config.first_qpn) / kQpnBlock) *
                                               kQpnBlock) {
    assert(config.first_qpn % kQpnBlock == 0 && (config.last_qpn + 1) % kQpnBlock == 0 &&
           config.first_qpn != 0 && config.first_qpn < config.last_qpn &&
           config.last_qpn < wire::kMulticastQpn);
  }

  CoreContext context;
  Requester requester;
  Responder responder;
  Datagram datagram;
  Notification notification;
  Management management;
  std::vector<QueuePair*> table;  // owns them
  const uint32_t
      slot_mask;  // a power of two of slots: a number beyond finds another QP's, and its number tells
  std::vector<uint32_t> free_slots;
  uint32_t next_slot = 0;
  uint32_t next_generation;  ///< the first QPN of its block
  MulticastTable multicast;

  alignas(64) std::atomic<QueuePair*> rung{nullptr};  // any thread pushes, the core takes all
  std::atomic<DoorbellListener*> listener{nullptr};

  void tell_listener() const {
    if (DoorbellListener* const hears = listener.load(std::memory_order_seq_cst); hears != nullptr)
        [[unlikely]]
      hears->on_doorbell();
  }

  [[nodiscard]] std::pmr::polymorphic_allocator<> memory() const { return context.config.qp_memory; }
  [[nodiscard]] QueuePair* find(uint32_t qpn) const {
    QueuePair* qp = table[qpn & slot_mask];
    return qp != nullptr && qp->qpn == qpn ? qp : nullptr;
  }

  void prefetch(std::span<const RxFrame> frames) const;
  /// True where the frame stays with the core.
  bool on_frame(const RxFrame& frame);
  bool on_connected(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame);
  bool on_multicast(const wire::Packet& packet, const RxFrame& frame);
  void note_drained(QueuePair& qp);
  void on_notification(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] bool admits(const QueuePair& qp, const wire::Packet& packet);
  void take_doorbells();
  void take_resolutions();
  void resolve(const odp::Resolution& resolution);
  void run_timers();
  void serve(QueuePair& qp, uint32_t& budget_packets);
  void rearm(QueuePair& qp);
  void reset(QueuePair& qp);
  void apply(QueuePair& qp, const QpAttributes& attributes, uint32_t mask);
};

Core::Core(const CoreConfig& config, odp::MemoryAccess& memory, Port& port, EventSink* events)
    : config_(config), impl_(std::make_unique<Impl>(config_, memory, port, events)) {}

Core::~Core() {
  for (QueuePair* qp : impl_->table)
    if (qp != nullptr) {
      impl_->context.release_parked(*qp);
      impl_->context.release_held(*qp);
      impl_->memory().delete_object(qp);
    }
}

// ---- packets in ----

void Core::on_packets(std::span<RxFrame> frames, TimeNs now) {
  impl_->context.now_ns = now;
  impl_->prefetch(frames);
  size_t released = 0;
  for (const RxFrame& frame : frames)
    if (!impl_->on_frame(frame)) frames[released++] = frame;
  impl_->context.port.release(frames.first(released));
}

/// Of a burst for many QPs the misses overlap: first those of the table, then those of the QPs, then those of
/// the WQEs that answers complete.
void Core::Impl::prefetch(std::span<const RxFrame> frames) const {
  constexpr size_t kBurst = 32;
  std::array<uint32_t, kBurst> slots;
  const size_t count = std::min(frames.size(), kBurst);
  if (count < 2) return;
  for (size_t i = 0; i < count; ++i) {
    slots[i] = wire::peek_destination_qpn({frames[i].data, frames[i].length_bytes}) & slot_mask;
    __builtin_prefetch(&table[slots[i]]);
  }
  for (size_t i = 0; i < count; ++i)
    if (const QueuePair* qp = table[slots[i]]; qp != nullptr) qp->prefetch();
  for (size_t i = 0; i < count; ++i)
    if (QueuePair* qp = table[slots[i]]; qp != nullptr && qp->awaits_answers())
      qp->prefetch_sends(qp->send_ring.head(), qp->requester.started);
}

bool Core::Impl::on_frame(const RxFrame& frame) {
  CoreCounters& counters = context.counters;
  ++counters.rx_packets;
  counters.rx_bytes += frame.length_bytes;
  wire::Packet packet;
  wire::ParseError error =
      wire::parse({frame.data, frame.length_bytes}, packet, static_cast<uint8_t>(frame.rx_checks));
  if (error == wire::ParseError::none && !wire::icrc_matches(packet)) error = wire::ParseError::icrc;
  if (error != wire::ParseError::none) {
    ++counters.parse_errors[static_cast<size_t>(error)];
    return false;
  }
  if (packet.bth.destination_qpn == wire::kMulticastQpn) return on_multicast(packet, frame);
  QueuePair* qp = find(packet.bth.destination_qpn);
  if (qp == nullptr) {
    if (packet.bth.destination_qpn == wire::kManagementQpn)
      management.on_packet(packet);
    else
      context.count(DropReason::unknown_qpn);
    return false;
  }
  if (packet.info->service == wire::Service::cnp) {
    on_notification(*qp, packet);
    return false;
  }
  if (packet.info->service != service_of(qp->type) && !is_ours(packet.info->service, qp->type)) {
    context.count(DropReason::wrong_service);
    return false;
  }
  if (!admits(*qp, packet)) return false;
  if (qp->type == QpType::ud) return datagram.on_packet(*qp, packet, frame);
  return on_connected(*qp, packet, frame);
}

bool Core::Impl::admits(const QueuePair& qp, const wire::Packet& packet) {
  if (!can_receive(qp.state_now())) {
    context.count(DropReason::qp_state);
    return false;
  }
  // The one P_Key is the default, full member: any member of that partition may talk to it (IBA 10.9.3).
  if ((packet.bth.pkey & wire::kPkeyBaseMask) != (wire::kDefaultPkey & wire::kPkeyBaseMask)) {
    context.count(DropReason::pkey);
    return false;
  }
  return true;
}

void Core::Impl::on_notification(QueuePair& qp, const wire::Packet& packet) {
  // A datagram has no path to slow down, and a forged notification would starve its victim.
  if (qp.type == QpType::ud || !packet.bth.becn) return context.count(DropReason::cnp);
  if (!admits(qp, packet)) return;
  if (packet.source_gid() != qp.attributes.av.path.destination_gid)
    return context.count(DropReason::source_address);
  notification.on_notification(qp);
}

/// A copy for every member of the group (IBA 10.5.2).
bool Core::Impl::on_multicast(const wire::Packet& packet, const RxFrame& frame) {
  const std::span<QueuePair* const> members = multicast.members(packet.destination_gid());
  if (members.empty()) {
    context.count(DropReason::multicast_group);
    return false;
  }
  if (packet.info->service != wire::Service::ud) {
    context.count(DropReason::wrong_service);
    return false;
  }
  bool kept = false;
  for (QueuePair* qp : members) {
    if (qp->blocks_own_multicast && packet.deth().source_qpn == qp->qpn &&
        packet.source_gid() == qp->multicast_source) {
      context.count(DropReason::own_multicast);
      continue;
    }
    if (admits(*qp, packet) && datagram.on_multicast(*qp, packet, frame, !kept)) kept = true;
  }
  return kept;
}

bool Core::Impl::on_connected(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame) {
  if (packet.source_gid() != qp.attributes.av.path.destination_gid) {
    context.count(DropReason::source_address);
    return false;
  }
  if (packet.ecn == wire::kEcnCongestionExperienced) notification.on_marked(qp);
  // An XRC initiator has no responder, and a target no requester.
  if (qp.type == (packet.info->request ? QpType::xrc_send : QpType::xrc_recv)) {
    context.count(DropReason::unexpected_response);
    return false;
  }
  if (packet.info->request) {
    if (qp.state_now() == QpState::rtr && !qp.communication_established) {
      qp.communication_established = true;
      context.raise(qp, AsyncEvent::communication_established);
    }
    const Responder::Fate fate = qp.type == QpType::uc ? responder.on_unreliable(qp, packet, frame)
                                                       : responder.on_request(qp, packet, frame);
    return fate == Responder::Fate::parked;
  }
  if (qp.type == QpType::uc) {
    context.count(DropReason::unexpected_response);
    return false;
  }
  if (!can_take_responses(qp.state_now())) {
    context.count(DropReason::qp_state);
    return false;
  }
  switch (packet.info->operation) {
    case wire::Operation::acknowledge:
      requester.on_acknowledge(qp, packet);
      break;
    case wire::Operation::selective_acknowledge:
      requester.on_selective_acknowledge(qp, packet);
      break;
    case wire::Operation::read_response:
    case wire::Operation::atomic_acknowledge:
      requester.on_answer(qp, packet);
      break;
    default:
      context.count(DropReason::unexpected_response);
  }
  return false;
}

// ---- the turn ----

void Core::poll(TimeNs now) {
  CoreContext& context = impl_->context;
  context.now_ns = now;
  impl_->take_doorbells();
  impl_->take_resolutions();
  impl_->run_timers();
  if (context.tx.is_blocked()) context.tx.flush();
  impl_->management.send();
  uint32_t budget_packets = kPollPackets;
  uint32_t patience_qps = kBlockedQps;
  while (budget_packets != 0 && patience_qps != 0 && context.has_ready()) {
    const uint32_t before = budget_packets;
    for (uint32_t left = context.ready_count(); left != 0 && budget_packets != 0 && patience_qps != 0;
         --left) {
      impl_->serve(*context.pop_ready(), budget_packets);
      if (context.tx.is_blocked()) --patience_qps;
    }
    if (budget_packets == before) break;  // all that is ready waits for the port
  }
  context.end_moderations();
  context.tx.flush();
}

TimeNs Core::next_deadline() const {
  const CoreContext& context = impl_->context;
  if (context.has_ready() || context.tx.has_unsent() || impl_->management.has_work() ||
      impl_->rung.load(std::memory_order_relaxed) != nullptr)
    return context.now_ns;
  return std::min(std::min(context.timers.next_deadline(), context.paces.next_deadline()),
                  context.next_moderation());
}

void Core::ring_doorbell(QueuePair* qp) {
  if (qp->doorbell_rung.exchange(true, std::memory_order_acq_rel)) return;
  QueuePair* head = impl_->rung.load(std::memory_order_relaxed);
  do {
    qp->next_rung = head;
  } while (
      !impl_->rung.compare_exchange_weak(head, qp, std::memory_order_seq_cst, std::memory_order_relaxed));
  impl_->tell_listener();
}

void Core::set_doorbell_listener(DoorbellListener* listener) {
  impl_->listener.store(listener, std::memory_order_seq_cst);
}

void Core::set_management_sink(ManagementSink* sink) {
  impl_->management.set_sink(sink);
}

bool Core::send_mad(const wire::MadBytes& mad, const AddressVector& to, uint16_t pkey) {
  const bool posted = impl_->management.post(mad, to, pkey);
  impl_->tell_listener();
  return posted;
}

bool Core::has_mads_to_send() const {
  return impl_->management.has_work();
}

void Core::expect_doorbell(const QueuePair* qp) {
  __builtin_prefetch(&qp->doorbell_rung, 1);
}

void Core::Impl::take_doorbells() {
  if (rung.load(std::memory_order_relaxed) == nullptr) return;
  QueuePair* newest = rung.exchange(nullptr, std::memory_order_acquire);
  QueuePair* oldest = nullptr;
  while (newest != nullptr) {
    QueuePair* next = newest->next_rung;
    newest->next_rung = oldest;
    newest->prefetch();
    oldest = newest;
    newest = next;
  }
  while (oldest != nullptr) {
    QueuePair* next = oldest->next_rung;
    // Cleared before the ring's tail is read: what is posted from here on rings again. A read-modify-write,
    // since a plain store could be ordered behind that read.
    oldest->doorbell_rung.exchange(false, std::memory_order_acq_rel);
    context.make_ready(*oldest);
    oldest = next;
  }
}

void Core::Impl::take_resolutions() {
  std::array<odp::Resolution, 32> batch;
  size_t taken = 0;
  do {
    taken = context.memory.take_resolutions(batch);
    for (size_t i = 0; i < taken; ++i) resolve(batch[i]);
  } while (taken == batch.size());
}

void Core::Impl::resolve(const odp::Resolution& resolution) {
  QueuePair* qp = find(static_cast<uint32_t>(resolution.waiter) & wire::kQpnMask);
  if (qp == nullptr) return;
  const auto role = static_cast<FaultRole>(resolution.waiter >> 24 & 0xff);
  const auto generation = static_cast<uint32_t>(resolution.waiter >> 32);
  const bool ud = qp->type == QpType::ud;
  switch (role) {
    case FaultRole::requester:
      if (ud)
        datagram.on_send_resolved(*qp, generation, resolution.outcome);
      else
        requester.on_fault_resolved(*qp, generation, resolution.outcome);
      return;
    case FaultRole::parked:
      if (ud)
        datagram.on_parked_resolved(*qp, generation, resolution.outcome);
      else
        responder.on_parked_resolved(*qp, generation, resolution.outcome);
      return;
    case FaultRole::read_job:
      responder.on_read_job_resolved(*qp, generation, resolution.outcome);
      return;
  }
}

void Core::Impl::run_timers() {
  while (TimerNode* node = context.timers.pop_due(context.now_ns)) {
    QueuePair& qp = *static_cast<QueuePair::Timer*>(node)->qp;
    if (qp.type == QpType::ud) {
      datagram.on_timer(qp);
    } else {
      requester.on_timer(qp);
      responder.on_timer(qp);
    }
    rearm(qp);
  }
  while (TimerNode* node = context.paces.pop_due(context.now_ns))
    context.make_ready(*static_cast<QueuePair::Timer*>(node)->qp);
}

void Core::Impl::rearm(QueuePair& qp) {
  context.arm(qp, std::min(Requester::next_deadline(qp), Responder::next_deadline(qp)));
}

/// In SQD, with what had begun completed (IBA 10.3.1.4).
void Core::Impl::note_drained(QueuePair& qp) {
  if (qp.state_now() != QpState::sqd || !qp.attributes.sqd_notify || is_draining(qp)) return;
  qp.attributes.sqd_notify = false;
  context.raise(qp, AsyncEvent::sq_drained);
}

void Core::Impl::serve(QueuePair& qp, uint32_t& budget_packets) {
  if (qp.state_now() == QpState::err) return context.flush(qp);
  if (qp.state_now() == QpState::reset || qp.state_now() == QpState::init) return;
  uint32_t quantum = std::min(kQuantumPackets, budget_packets);
  const uint32_t given = quantum;
  bool more = false;
  if (qp.type == QpType::ud) {
    if (qp.responder.parked_retry) datagram.retry_parked(qp);
    datagram.send(qp, quantum);
    if (qp.state_now() == QpState::sqe) requester.flush_sends(qp);
    more = datagram.has_work(qp);
  } else {
    if (qp.cnp_pending) notification.send(qp);
    if (qp.responder.parked_retry) responder.retry_parked(qp);
    responder.offer_credits(qp);
    responder.send(qp, quantum);
    if (can_take_responses(qp.state_now())) requester.send(qp, quantum);
    if (qp.state_now() == QpState::sqe) requester.flush_sends(qp);
    more = responder.has_work(qp) || (can_take_responses(qp.state_now()) && requester.has_work(qp));
  }
  note_drained(qp);
  budget_packets -= given - quantum;
  if (more && quantum == 0) context.make_ready(qp);
}

// ---- control ----

QueuePair* Core::create_qp(const QpInit& init) {
  uint32_t slot = 0;
  if (!impl_->free_slots.empty()) {
    slot = impl_->free_slots.back();
  } else if (impl_->next_slot * config_.core_count + config_.core_index <= impl_->slot_mask) {
    slot = impl_->next_slot * config_.core_count + config_.core_index;
  } else {
    return nullptr;
  }
  try {
    // Room for the way back, so that destroy cannot fail.
    impl_->free_slots.reserve(impl_->next_slot + 1);
    const uint32_t qpn = impl_->next_generation | slot;
    impl_->table[slot] = impl_->memory().new_object<QueuePair>(qpn, init, config_.qp_memory);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  impl_->next_generation += kQpnBlock;
  if (impl_->next_generation > config_.last_qpn) impl_->next_generation = config_.first_qpn;
  if (!impl_->free_slots.empty())
    impl_->free_slots.pop_back();
  else
    ++impl_->next_slot;
  return impl_->table[slot];
}

void Core::destroy_qp(QueuePair* qp) {
  impl_->multicast.forget(qp);
  impl_->take_doorbells();
  impl_->context.remove_ready(*qp);
  impl_->context.timers.disarm(qp->timer);
  impl_->context.paces.disarm(qp->pacing_timer);
  impl_->context.release_parked(*qp);
  impl_->context.release_held(*qp);
  const uint32_t slot = qp->qpn & impl_->slot_mask;
  impl_->memory().delete_object(qp);
  impl_->table[slot] = nullptr;
  impl_->free_slots.push_back(slot);
}

int Core::modify_qp(QueuePair* qp, const QpAttributes& attributes, uint32_t mask, TimeNs now) {
  const QpState from = qp->state_now();
  const QpState to = (mask & kAttrState) != 0 ? attributes.state : from;
  if (!check_transition(qp->type, from, to, mask)) return EINVAL;
  if ((mask & kAttrCurState) != 0 && (mask & kAttrState) == 0) return EINVAL;
  if ((mask & kAttrMaxDestRdAtomic) != 0) {
    const int refused = Responder::set_resources(*qp, std::max<uint32_t>(attributes.max_dest_rd_atomic, 1));
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
    impl_->context.enter_error(*qp);
    return 0;
  }
  if (to == QpState::reset) {
    impl_->reset(*qp);
    return 0;
  }
  impl_->apply(*qp, attributes, mask);
  qp->state.store(to, std::memory_order_relaxed);
  impl_->context.make_ready(*qp);
  return 0;
}

void Core::Impl::reset(QueuePair& qp) {
  qp.state.store(QpState::reset, std::memory_order_relaxed);
  take_doorbells();
  context.release_parked(qp);
  context.release_held(qp);
  context.timers.disarm(qp.timer);
  context.paces.disarm(qp.pacing_timer);
  qp.rate_control.reset();
  qp.pacing = {};
  qp.cnp_pending = false;
  // Generations go on, so that answers to the old life's faults are told from the new one's.
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
  qp.communication_established = false;
  qp.send_ring.clear();
  qp.receive_ring.clear();
  qp.receive_taken = false;
}

void Core::Impl::apply(QueuePair& qp, const QpAttributes& attributes, uint32_t mask) {
  QpAttributes& now = qp.attributes;
  if ((mask & kAttrState) != 0) {
    now.state = attributes.state;
    // Asked for anew each time: a notification that was due when the QP went back to RTS is not.
    if (attributes.state == QpState::sqd && qp.state_now() != QpState::sqd) now.sqd_notify = false;
  }
  if ((mask & kAttrAccessFlags) != 0) now.access_flags = attributes.access_flags;
  if ((mask & kAttrEnSqdAsyncNotify) != 0) now.sqd_notify = attributes.sqd_notify;
  if ((mask & kAttrQkey) != 0) now.qkey = attributes.qkey;
  if ((mask & kAttrAv) != 0) {
    now.av = attributes.av;
    qp.loopback = attributes.av.loopback;
    wire::PathHeader path = attributes.av.path;
    // Marks mean something only to a sender that heeds them (RFC 3168 5).
    if (context.config.congestion.algorithm == CongestionAlgorithm::dcqcn && qp.type != QpType::ud)
      path.traffic_class = static_cast<uint8_t>((path.traffic_class & ~wire::kEcnMask) | wire::kEcnCapable);
    qp.frame = wire::FrameTemplate(path, context.config.wire_checksums);
  }
  if ((mask & kAttrPathMtu) != 0) {
    now.path_mtu = attributes.path_mtu;
    qp.mtu_bytes = bytes_of(attributes.path_mtu);
  }
  if ((mask & kAttrTimeout) != 0) now.timeout = attributes.timeout & 0x1f;
  if ((mask & kAttrRetryCnt) != 0) qp.requester.retries_left = now.retry_count = attributes.retry_count & 7;
  if ((mask & kAttrRnrRetry) != 0) qp.requester.rnr_retries_left = now.rnr_retry = attributes.rnr_retry & 7;
  if ((mask & kAttrMinRnrTimer) != 0) now.min_rnr_timer = attributes.min_rnr_timer & 0x1f;
  if ((mask & kAttrMaxQpRdAtomic) != 0) now.max_rd_atomic = attributes.max_rd_atomic;
  if ((mask & kAttrMaxDestRdAtomic) != 0) now.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  if ((mask & kAttrDestQpn) != 0) now.destination_qpn = attributes.destination_qpn & wire::kQpnMask;
  if ((mask & kAttrRqPsn) != 0) {
    now.rq_psn = attributes.rq_psn & wire::Psn::kMask;
    qp.responder.expected_psn = wire::Psn(now.rq_psn);
    qp.responder.lived_psns = 0;
  }
  if ((mask & kAttrSqPsn) != 0) {
    now.sq_psn = attributes.sq_psn & wire::Psn::kMask;
    qp.requester.next_psn = qp.requester.unacked_psn = qp.requester.sent_psn = wire::Psn(now.sq_psn);
  }
}

SharedReceiveQueue* Core::create_srq(const SrqInit& init) {
  return impl_->context.create_srq(init);
}

int Core::modify_srq(SharedReceiveQueue* srq, const uint32_t* limit, uint32_t max_wr) {
  return modify(*srq, limit, max_wr);
}

void Core::destroy_srq(SharedReceiveQueue* srq) {
  // XRC targets hold no SRQ: one may be in the middle of a message to it.
  for (uint32_t slot = 0; slot < impl_->next_slot; ++slot)
    if (QueuePair* const qp = impl_->table[slot * config_.core_count + config_.core_index]; qp != nullptr)
      impl_->context.forget(*qp, *srq);
  impl_->context.destroy_srq(srq);
}

int Core::attach_multicast(QueuePair* qp, const wire::Gid& gid) {
  return qp->type == QpType::ud && gid.is_multicast() ? impl_->multicast.attach(qp, gid) : EINVAL;
}

int Core::detach_multicast(QueuePair* qp, const wire::Gid& gid) {
  return impl_->multicast.detach(qp, gid);
}

void Core::forget_cq(const CompletionQueue& cq) {
  impl_->context.forget(cq);
}

CoreCounters Core::counters() const {
  return impl_->context.counters;
}

// ---- what verbs looks at ----

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
