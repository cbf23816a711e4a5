// SPDX-License-Identifier: BSD-3-Clause
// The core's loop: received packets and their checks, then doorbells, fault resolutions, timers and
// transmission.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>

#include "stack/base/probes.hpp"
#include "stack/transport/context/recorder.hpp"
#include "stack/transport/core/core_impl.hpp"
#include "stack/transport/qp/qp_state.hpp"
#include "stack/wire/link/address_filter.hpp"
#include "stack/wire/packet/ecn.hpp"
#include "stack/wire/packet/identification.hpp"

namespace faultline::transport {

namespace {

/// Packets that one QP may send before the next ready QP is served, and packets that one poll may send before
/// the core receives again.
constexpr uint32_t kQuantumPackets = 32;
constexpr uint32_t kPollPackets = 128;
/// Ready QPs that one poll serves although the port is full. Some need no transmit buffer. Ten thousand that
/// do must not delay reception.
constexpr uint32_t kBlockedQps = 1;

/// Selective acknowledgements use a manufacturer opcode and are accepted by any connected and acknowledged
/// QP.
bool is_ours(wire::Service service, QpType type) {
  return service == wire::Service::manufacturer && (type == QpType::rc || type == QpType::xrc_send);
}

bool can_take_responses(QpState state) {
  return state == QpState::rts || state == QpState::sqd;
}

bool sends_by_socket(const CoreConfig& config) {
  return (config.wire_checksums & static_cast<uint8_t>(wire::Checksums::by_socket)) != 0;
}

}  // namespace

Core::Core(const CoreConfig& config, odp::MemoryAccess& memory, Port& port, EventSink* events)
    : config_(config), impl_(std::make_unique<Impl>(config_, memory, port, events)) {}

Core::~Core() {
  for (QueuePair* qp : impl_->table)
    if (qp != nullptr) {
      impl_->context.parking.release_parked(*qp);
      impl_->context.parking.release_held(*qp);
      impl_->memory().delete_object(qp);
    }
}

// ---- received packets ----

void Core::on_packets(std::span<RxFrame> frames, TimeNs now) {
  impl_->context.now_ns = now;
  impl_->context.counters.rx_packets += frames.size();
  impl_->context.notices.defer();
  size_t released = 0;
  constexpr size_t kBurst = Impl::kBurst;
  for (size_t done = 0; done < frames.size(); done += kBurst) {
    const std::span<const RxFrame> burst = frames.subspan(done, std::min(kBurst, frames.size() - done));
    // Raw storage rather than an array of packets, which would initialise all of them for a burst of one.
    alignas(wire::Packet) std::array<std::byte, kBurst * sizeof(wire::Packet)> storage;
    auto* const packets = reinterpret_cast<wire::Packet*>(storage.data());
    std::array<wire::ParseError, kBurst> errors;
    bool has_long = false;
    for (size_t i = 0; i < burst.size(); ++i) {
      wire::Packet& packet = *std::construct_at(&packets[i]);
      impl_->context.counters.rx_bytes += burst[i].length_bytes;
      errors[i] = wire::parse({burst[i].data, burst[i].length_bytes}, packet,
                              static_cast<uint8_t>(burst[i].rx_checks));
      if (errors[i] != wire::ParseError::none) continue;
      has_long |= IcrcAhead::is_for(packet);
      __builtin_prefetch(&impl_->table[packet.bth.destination_qpn & impl_->slot_mask]);
    }
    RxPrefetch<kBurst> arrivals;
    if (burst.size() > 1) impl_->announce({packets, burst.size()}, errors, arrivals);
    // Nothing is ahead in a burst of short packets to one QP.
    const bool looks_ahead = burst.size() > 1 && (has_long || arrivals.has_several());
    for (size_t i = 0; i < burst.size(); ++i) {
      if (looks_ahead) impl_->look_ahead({packets, burst.size()}, errors, i, arrivals);
      const bool kept = !impl_->is_observed ? impl_->on_frame(burst[i], packets[i], errors[i])
                                            : impl_->on_frame_observed(burst[i], packets[i], errors[i]);
      if (!kept) frames[released++] = burst[i];
    }
    if (looks_ahead) impl_->icrc_ahead.end_burst();
  }
  impl_->context.notices.end_deferral(impl_->context.now_ns);
  impl_->context.port.release(frames.first(released));
}

void Core::Impl::announce(std::span<const wire::Packet> packets,
                          const std::array<wire::ParseError, kBurst>& errors,
                          RxPrefetch<kBurst>& arrivals) const {
  uint32_t last_qpn = wire::kMulticastQpn;
  for (size_t i = 0; i < packets.size(); ++i) {
    if (errors[i] != wire::ParseError::none || packets[i].bth.destination_qpn == last_qpn) continue;
    last_qpn = packets[i].bth.destination_qpn;
    arrivals.add(table[last_qpn & slot_mask], packets[i], i);
  }
  arrivals.start();
}

/// Starts early what the packets after the one at `at` need.
[[gnu::always_inline]] inline void Core::Impl::look_ahead(std::span<const wire::Packet> packets,
                                                          const std::array<wire::ParseError, kBurst>& errors,
                                                          size_t at, RxPrefetch<kBurst>& arrivals) {
  arrivals.reach(at);
  const bool sums_ahead = at + 1 < packets.size() && errors[at + 1] == wire::ParseError::none &&
                          IcrcAhead::is_for(packets[at + 1]) && context.config.verify_icrc;
  icrc_ahead.advance(sums_ahead ? &packets[at + 1] : nullptr);
}

/// Decides about a packet whose ICRC is wrong. If the port receives by a socket, which hides the
/// identification, it may be right for one that the kernel gives to a packet of a train, or that the peer
/// counts.
wire::ParseError Core::Impl::check_hidden_identification(const wire::Packet& packet) {
  if (peer_identifications == nullptr) return wire::ParseError::icrc;
  std::optional<uint16_t> identification = wire::hidden_identification(packet);
  if (!identification && context.config.rxe_flush_icrc)
    identification = wire::hidden_identification(packet, wire::IcrcForm::rxe_flush);
  if (!identification) return wire::ParseError::icrc;
  const auto addresses =
      uint64_t{packet.source_gid().ipv4()} << 32 | uint64_t{packet.destination_gid().ipv4()};
  if (*identification < wire::kMostTrainPackets) {
    peer_identifications->note_accepted(addresses, *identification, context.now_ns);
    return wire::ParseError::none;
  }
  return peer_identifications->accept(addresses, *identification, context.now_ns)
             ? wire::ParseError::none
             : wire::ParseError::identification;
}

bool Core::Impl::on_frame(const RxFrame& frame, const wire::Packet& packet, wire::ParseError error) {
  if (error == wire::ParseError::none && context.config.verify_icrc && !icrc_ahead.matches(packet) &&
      !(context.config.rxe_flush_icrc && wire::has_rxe_flush_icrc(packet)))
    error = check_hidden_identification(packet);
  if (error != wire::ParseError::none) {
    ++context.counters.parse_errors[static_cast<size_t>(error)];
    context.last_drop = static_cast<uint8_t>(record::kParseErrors + static_cast<uint8_t>(error));
    return false;
  }
  probes::receive(packet.bth.destination_qpn, packet.bth.psn.value(), static_cast<uint8_t>(packet.bth.opcode),
                  packet.payload_bytes);
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
  if (packet.info->service != qp->service && !is_ours(packet.info->service, qp->type)) {
    context.count(DropReason::wrong_service);
    return false;
  }
  if (!admits(*qp, packet)) return false;
  if (qp->type == QpType::ud) {
    // Multicast packets are sent to QPN 0xffffff only (IBA 10.5.2).
    if (packet.is_multicast()) {
      context.count(DropReason::destination_address);
      return false;
    }
    ++qp->rx_packets;
    return datagram.on_packet(*qp, packet, frame);
  }
  return on_connected(*qp, packet, frame);
}

[[gnu::always_inline]] inline bool Core::Impl::admits(const QueuePair& qp, const wire::Packet& packet) {
  if (!can_receive(qp.state_now())) {
    context.count(DropReason::qp_state);
    return false;
  }
  // The only P_Key is the default one with full membership; any member of that partition may send to it (IBA
  // 10.9.3).
  if ((packet.bth.pkey & wire::kPkeyBaseMask) != (wire::kDefaultPkey & wire::kPkeyBaseMask)) {
    context.count(DropReason::pkey);
    return false;
  }
  return true;
}

/// A connection is between two addresses; packets from or to other addresses of the same hosts do not belong
/// to it (IBA 9.6.1.2).
[[gnu::always_inline]] inline bool Core::Impl::is_of_path(const QueuePair& qp, const wire::Packet& packet) {
  const wire::PathHeader& path = qp.attributes.av.path;
  if (qp.is_over_ipv4 && packet.is_ipv4_between(path.destination_gid, path.source_gid)) return true;
  if (packet.source_gid() != path.destination_gid) {
    context.count(DropReason::source_address);
    return false;
  }
  if (packet.destination_gid() != path.source_gid) {
    context.count(DropReason::destination_address);
    return false;
  }
  return true;
}

void Core::Impl::on_notification(QueuePair& qp, const wire::Packet& packet) {
  // A datagram has no path to slow down, and a forged notification would starve its victim.
  if (qp.protocol() == Protocol::datagram || !packet.bth.becn) return context.count(DropReason::cnp);
  if (!admits(qp, packet)) return;
  if (!is_of_path(qp, packet)) return;
  ++qp.rx_packets;
  notification.on_notification(qp);
}

/// Delivers a copy to every member of the group (IBA 10.5.2).
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
    if (!admits(*qp, packet)) continue;
    ++qp->rx_packets;
    if (datagram.on_multicast(*qp, packet, frame, !kept)) kept = true;
  }
  return kept;
}

[[gnu::always_inline]] inline bool Core::Impl::on_connected(QueuePair& qp, const wire::Packet& packet,
                                                            const RxFrame& frame) {
  if (!is_of_path(qp, packet)) return false;
  ++qp.rx_packets;
  if (packet.ecn == wire::kEcnCongestionExperienced) notification.on_marked(qp);
  // An XRC initiator has no responder, and an XRC target no requester.
  if (qp.type == (packet.info->request ? QpType::xrc_send : QpType::xrc_recv)) {
    context.count(DropReason::unexpected_response);
    return false;
  }
  if (packet.info->request) {
    if (qp.state_now() == QpState::rtr && !qp.communication_established) {
      qp.communication_established = true;
      context.raise(qp, AsyncEvent::communication_established);
    }
    const Fate fate = qp.protocol() == Protocol::unreliable ? unreliable.on_request(qp, packet, frame)
                                                            : responder.on_request(qp, packet, frame);
    return fate == Fate::parked;
  }
  if (qp.protocol() == Protocol::unreliable) {
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
  context.notices.defer();
  impl_->take_doorbells();
  impl_->take_resolutions();
  impl_->run_timers();
  if (context.tx.is_blocked()) context.tx.flush();
  if (impl_->management.has_work()) impl_->management.send();
  uint32_t budget_packets = kPollPackets;
  uint32_t patience_qps = kBlockedQps;
  while (budget_packets != 0 && patience_qps != 0 && !context.ready.empty()) {
    const uint32_t before = budget_packets;
    for (uint32_t left = context.ready.size(); left != 0 && budget_packets != 0 && patience_qps != 0;
         --left) {
      impl_->serve(*context.ready.pop(), budget_packets);
      if (context.tx.is_blocked()) --patience_qps;
    }
    if (budget_packets == before) break;  // every ready QP waits for the port
  }
  context.notices.end_deferral(context.now_ns);
  context.notices.end_moderations(context.now_ns);
  context.tx.flush();
}

bool Core::has_work(TimeNs now) const {
  const CoreContext& context = impl_->context;
  return impl_->rung.load(std::memory_order_relaxed) != nullptr || !context.ready.empty() ||
         context.tx.is_blocked() || context.tx.has_unsent() || impl_->management.has_work() ||
         context.timers.may_be_due(now) || context.paces.may_be_due(now) || context.notices.has_moderations();
}

void Core::send_posted(QueuePair* qp, TimeNs now) {
  CoreContext& context = impl_->context;
  context.now_ns = now;
  const auto is_ready_to_send = [&] { return qp->state_now() == QpState::rts && !context.tx.is_blocked(); };
  if (!is_ready_to_send()) return context.make_ready(*qp);
  uint32_t budget_packets = kQuantumPackets;
  const bool ud = qp->protocol() == Protocol::datagram;
  if (ud)
    impl_->datagram.send(*qp, budget_packets);
  else
    impl_->requester.send(*qp, budget_packets);
  // A system call costs more than the packets in it, so a deferred ACK shares the one of the program's
  // message. The QP stays on the ready list; the next poll then finds nothing to send.
  if (sends_by_socket(config_) && qp->protocol() == Protocol::reliable && is_ready_to_send())
    impl_->responder.send(*qp, budget_packets);
  if (context.recorder != nullptr) record_waiting(context, *qp);
  context.tx.flush();
  const bool more = ud ? impl_->datagram.has_work(*qp) : impl_->requester.has_work(*qp);
  if (more || !is_ready_to_send()) context.make_ready(*qp);
}

uint64_t Core::receives_completed() const {
  return impl_->context.receives_completed;
}

TimeNs Core::next_deadline() const {
  const CoreContext& context = impl_->context;
  if (!context.ready.empty() || context.tx.has_unsent() || impl_->management.has_work() ||
      impl_->rung.load(std::memory_order_relaxed) != nullptr)
    return context.now_ns;
  return std::min(std::min(context.timers.next_deadline(), context.paces.next_deadline()),
                  context.notices.next_moderation());
}

TimeNs Core::last_awaited_answers() const {
  return impl_->context.last_awaited_answers_ns.load(std::memory_order_relaxed);
}

void Core::ring_doorbell(QueuePair* qp) {
  if (qp->doorbell_rung.exchange(true, std::memory_order_acq_rel)) return;
  QueuePair* head = impl_->rung.load(std::memory_order_relaxed);
  do {
    qp->next_rung = head;
  } while (
      !impl_->rung.compare_exchange_weak(head, qp, std::memory_order_seq_cst, std::memory_order_relaxed));
  impl_->notify_doorbell_listener();
}

void Core::set_doorbell_listener(DoorbellListener* listener) {
  impl_->listener.store(listener, std::memory_order_seq_cst);
}

void Core::set_management_sink(ManagementSink* sink) {
  impl_->management.set_sink(sink);
}

bool Core::send_mad(const wire::MadBytes& mad, const AddressVector& to, uint16_t pkey) {
  const bool posted = impl_->management.post(mad, to, pkey);
  impl_->notify_doorbell_listener();
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
    newest->prefetch_to_send();
    oldest = newest;
    newest = next;
  }
  while (oldest != nullptr) {
    QueuePair* next = oldest->next_rung;
    // Cleared before the ring's tail is read: a later post rings the doorbell again. A read-modify-write,
    // since a plain store could be reordered after that read.
    oldest->doorbell_rung.exchange(false, std::memory_order_acq_rel);
    context.make_ready(*oldest);
    oldest = next;
  }
}

void Core::Impl::take_resolutions() {
  size_t taken = 0;
  do {
    taken = context.memory.take_resolutions(resolutions);
    for (size_t i = 0; i < taken; ++i) resolve(resolutions[i]);
  } while (taken == resolutions.size());
}

void Core::Impl::resolve(const odp::Resolution& resolution) {
  const auto [qpn, role, generation] = FaultWaiter::unpack(resolution.waiter);
  QueuePair* qp = find(qpn);
  if (qp == nullptr) return;
  if (context.recorder != nullptr) record_fault_end(context, FaultWaiter::unpack(resolution.waiter));
  switch (role) {
    case FaultRole::requester:
      if (qp->protocol() == Protocol::datagram)
        datagram.on_send_resolved(*qp, generation, resolution.outcome);
      else
        requester.on_fault_resolved(*qp, generation, resolution.outcome);
      return;
    case FaultRole::parked:
      switch (qp->protocol()) {
        case Protocol::reliable:
          return responder.on_parked_resolved(*qp, generation, resolution.outcome);
        case Protocol::unreliable:
          return unreliable.on_parked_resolved(*qp, generation, resolution.outcome);
        case Protocol::datagram:
          return datagram.on_parked_resolved(*qp, generation, resolution.outcome);
      }
      return;
    case FaultRole::read_job:
      responder.on_read_job_resolved(*qp, generation, resolution.outcome);
      return;
  }
}

void Core::Impl::run_timers() {
  while (TimerNode* node = context.timers.pop_due(context.now_ns)) {
    QueuePair& qp = *static_cast<QueuePair::Timer*>(node)->qp;
    const uint64_t timeouts = context.counters.timeouts;
    const uint64_t probes = context.counters.probes_sent;
    switch (qp.protocol()) {
      case Protocol::reliable:
        requester.on_timer(qp);
        responder.on_timer(qp);
        break;
      case Protocol::unreliable:
        unreliable.on_timer(qp);
        break;
      case Protocol::datagram:
        datagram.on_timer(qp);
        break;
    }
    if (context.recorder != nullptr) record_timer(context, qp, timeouts, probes);
    rearm(qp);
  }
  while (TimerNode* node = context.paces.pop_due(context.now_ns))
    context.make_ready(*static_cast<QueuePair::Timer*>(node)->qp);
}

void Core::Impl::rearm(QueuePair& qp) {
  context.arm(qp, std::min(Requester::next_deadline(qp), Responder::next_deadline(qp)));
}

/// Raises sq_drained in SQD once all started sends are completed (IBA 10.3.1.4).
void Core::Impl::note_drained(QueuePair& qp) {
  if (qp.state_now() != QpState::sqd || !qp.attributes.sqd_notify || is_draining(qp)) return;
  qp.attributes.sqd_notify = false;
  context.raise(qp, AsyncEvent::sq_drained);
}

/// Returns true if the QP has more to send.
bool Core::Impl::serve_datagrams(QueuePair& qp, uint32_t& quantum) {
  if (qp.responder.parked_retry) datagram.retry_parked(qp);
  datagram.send(qp, quantum);
  if (qp.state_now() == QpState::sqe) requester.flush_sends(qp);
  return datagram.has_work(qp);
}

[[gnu::always_inline]] inline bool Core::Impl::serve_connected(QueuePair& qp, uint32_t& quantum) {
  if (qp.cnp_pending) notification.send(qp);
  if (qp.responder.parked_retry) {
    if (qp.protocol() == Protocol::unreliable)
      unreliable.retry_parked(qp);
    else
      responder.retry_parked(qp);
  }
  responder.offer_credits(qp);
  // Answers and requests take turns at being first: READs of the peer may fill the port for long.
  const bool requests_first = qp.requests_first;
  if (requests_first && can_take_responses(qp.state_now())) requester.send(qp, quantum);
  responder.send(qp, quantum);
  const bool has_answers = responder.has_work(qp);
  qp.requests_first = has_answers && !requests_first;
  if (!requests_first && can_take_responses(qp.state_now())) requester.send(qp, quantum);
  if (qp.state_now() == QpState::sqe) requester.flush_sends(qp);
  return has_answers || (can_take_responses(qp.state_now()) && requester.has_work(qp));
}

void Core::Impl::serve(QueuePair& qp, uint32_t& budget_packets) {
  if (qp.state_now() == QpState::err) {
    if (!qp.lost_completion) return context.flush(qp);
    responder.send_last_answer(qp);
    return context.enter_error(qp);
  }
  if (qp.state_now() == QpState::reset || qp.state_now() == QpState::init) return;
  uint32_t quantum = std::min(kQuantumPackets, budget_packets);
  const uint32_t given = quantum;
  const bool more =
      qp.protocol() == Protocol::datagram ? serve_datagrams(qp, quantum) : serve_connected(qp, quantum);
  note_drained(qp);
  budget_packets -= given - quantum;
  const bool is_served_again = more && quantum == 0;
  if (is_served_again) context.make_ready(qp);
  // What this turn still sends does not wait.
  const bool turn_ends = !is_served_again || budget_packets == 0 || context.tx.is_blocked();
  if (context.recorder != nullptr && turn_ends) record_waiting(context, qp);
}

}  // namespace faultline::transport
