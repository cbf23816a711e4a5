// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/poll_engine.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <utility>

#include <rte_mbuf.h>
#include <time.h>

#include "pmd_glue/eal/mbuf_view.hpp"
#include "pmd_glue/engine/reasons.hpp"
#include "pmd_glue/ports/rss_table.hpp"
#include "pmd_glue/wires/switch_protocol.hpp"
#include "stack/base/clock.hpp"
#include "stack/transport/qp/failure_record.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/wire/link/flow_hash.hpp"
#include "stack/wire/link/steering.hpp"
#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::glue {
namespace {

using transport::RxFrame;

// A process on a shared wire can have as many QPs as its device reports (ibv_query_device).
static_assert((1U << kQpnRangeShift) >= verbs::kMaxQps);

transport::CoreConfig core_config(const Config& config, const DeviceConfig& device,
                                  const WireAttachment* attachment, const EthernetPort& port,
                                  const CoreSlot& slot, std::pmr::memory_resource* qp_memory,
                                  const Capture* capture) {
  transport::CoreConfig core = config.core;
  core.qp_memory = qp_memory;
  core.core_count = slot.cores;
  core.core_index = slot.index;
  core.recorder = slot.recorder;
  core.min_ack_timeout_ns = device.min_ack_timeout_ns;
  core.reports_drops = capture != nullptr;
  core.max_path_mtu_bytes = wire::largest_path_mtu_bytes(port_mtu_bytes(device), true);
  if (attachment != nullptr && attachment->grant().shared != 0) {
    core.first_qpn = attachment->grant().first_qpn();
    core.last_qpn = attachment->grant().last_qpn();
  }
  core.qpn_seed = std::random_device()();
  core.wire_checksums = 0;
  if (!port.offloads_ipv4_checksum())
    core.wire_checksums |= static_cast<uint8_t>(wire::Checksums::ip_in_software);
  if (config.udp_checksum && !port.offloads_udp_checksum())
    core.wire_checksums |= static_cast<uint8_t>(wire::Checksums::udp_in_software);
  if (port.sends_by_socket()) core.wire_checksums |= static_cast<uint8_t>(wire::Checksums::by_socket);
  core.window_packets = std::min(core.window_packets, port.most_window_packets());
  core.verify_icrc = config.icrc;
  if (!config.icrc) core.wire_checksums |= static_cast<uint8_t>(wire::Checksums::no_icrc);
  return core;
}

// Each core and direction has a separate random generator.
uint64_t chaos_seed(uint64_t seed, const CoreSlot& slot, unsigned what) {
  return chaos::Random(seed + uint64_t{slot.index} * 4 + what).next();
}

std::unique_ptr<ChaosLink> chaos_link(const ChaosConfig& chaos, bool wanted, const CoreSlot& slot,
                                      unsigned direction, rte_mempool* pool,
                                      std::unique_ptr<chaos::FrameJudge> judge, Capture* capture) {
  const bool harmless = !wanted || chaos.link.harmless();
  if (harmless && judge == nullptr) return nullptr;
  chaos::LinkModelConfig link = harmless ? chaos::LinkModelConfig{} : chaos.link;
  link.seed = chaos_seed(link.seed, slot, direction);
  return std::make_unique<ChaosLink>(link, pool, std::move(judge), capture);
}

std::unique_ptr<chaos::FaultModel> fault_model(const ChaosConfig& chaos, const CoreSlot& slot,
                                               odp::MemoryAccess& memory, const DeviceTrouble& trouble) {
  chaos::FaultModelConfig faults = chaos.faults;
  faults.decide = trouble.fault_judge();
  if (faults.harmless()) return nullptr;
  faults.seed = chaos_seed(faults.seed, slot, 2);
  return std::make_unique<chaos::FaultModel>(faults, memory);
}

}  // namespace

rte_mbuf* make_contiguous(rte_mbuf* frame, rte_mempool* pool) {
  if (frame->nb_segs == 1) return frame;
  if (rte_pktmbuf_linearize(frame) == 0) return frame;
  // The first buffer is too small for the rest; a buffer of `pool` may hold it.
  rte_mbuf* copy = rte_pktmbuf_alloc(pool);
  const uint32_t length_bytes = frame->pkt_len;
  if (copy != nullptr && length_bytes <= rte_pktmbuf_tailroom(copy)) {
    uint8_t* to = rte_pktmbuf_mtod(copy, uint8_t*);
    for (const rte_mbuf* part = frame; part != nullptr; part = part->next)
      to = std::copy_n(rte_pktmbuf_mtod(part, const uint8_t*), part->data_len, to);
    set_length(copy, length_bytes);
    copy->ol_flags = frame->ol_flags;
  } else {
    rte_pktmbuf_free(copy);
    copy = nullptr;
  }
  rte_pktmbuf_free(frame);
  return copy;
}

PollEngine::PollEngine(const Config& config, const DeviceConfig& device, WireAttachment* attachment,
                       const AddressTable& addresses, EthernetPort& port, odp::EngineSession& session,
                       Capture* capture, const CoreSlot& slot)
    : port_(port),
      session_(session),
      capture_(capture),
      in_core_(capture != nullptr ? std::make_unique<CapturedBurst<kBurst>>(*capture) : nullptr),
      core_slot_(slot),
      votes_(slot.hand_over != nullptr ? slot.hand_over->votes(slot.index) : nullptr),
      addresses_(addresses),
      filter_(addresses.mac(), addresses.vlan(), addresses.gids()),
      neighbours_(addresses),
      trouble_(device.name),
      receive_link_(chaos_link(device.chaos, device.chaos.receive, slot, 0, port.pool(),
                               trouble_.packet_judge(PacketJudge::Direction::in, core_), capture)),
      fault_model_(fault_model(device.chaos, slot, session, trouble_)),
      now_(monotonic_ns()),
      tx_(port, slot, attachment, filter_, capture,
          chaos_link(device.chaos, device.chaos.transmit, slot, 1, port.pool(),
                     trouble_.packet_judge(PacketJudge::Direction::out, core_), nullptr),
          counts_),
      ack_deferral_(port.sends_by_socket() ? CallerTracker::kAtOnceBySocketNs : CallerTracker::kAtOnceNs),
      core_(std::make_unique<transport::Core>(
          core_config(config, device, attachment, port, slot, qp_memory_.resource(), capture),
          fault_model_ != nullptr ? static_cast<odp::MemoryAccess&>(*fault_model_)
                                  : static_cast<odp::MemoryAccess&>(session),
          tx_, static_cast<transport::EventSink*>(this))),
      publisher_(*core_, slot.index),
      device_name_(device.name) {
  if (port.link_holds_frames())
    gate_.emplace(turns_, [this] {
      const bool moved = turn();
      session_.leave();
      return moved;
    });
}

PollEngine::~PollEngine() = default;

bool PollEngine::turn(Turn whose) {
  is_in_session_ = false;
  now_ = monotonic_ns();
  last_turn_.store(now_, std::memory_order_relaxed);
  tx_.begin(now_);
  const bool by_program = whose == Turn::of_program;
  if (by_program) ack_deferral_.note_call(now_);

  if (fault_model_ != nullptr) {
    enter_session();
    fault_model_->advance(now_);
  }
  if (trouble_.is_due()) [[unlikely]]
    suffer();
  size_t moved = deliver_loopback();
  if (core_slot_.hand_over != nullptr) moved += take_handed_over();
  if (tx_.is_port_usable())
    for (uint16_t queue = 0; queue < port_.receive_queues(); ++queue)
      if (port_.receiver_of(queue) == core_slot_.index) moved += receive(queue);
  if (receive_link_ != nullptr) deliver_due();
  if (by_program) may_serve_posted_.store(moved <= kFewFrames, std::memory_order_relaxed);
  const AckDeferral::Action action = ack_deferral_.after_receive(
      by_program, moved != 0, [this] { return core_->receives_completed(); }, now_);
  if (action == AckDeferral::Action::poll && (is_in_session_ || may_poll_do_work())) {
    enter_session();
    core_->poll(now_);
  }
  // Not in this turn, but perhaps since the one before: a thread that removes memory must not wait.
  if (!is_in_session_) session_.leave();
  if (now_ >= neighbours_.next_deadline()) send_neighbour_requests();
  if (tx_.is_impaired()) tx_.release_due();

  moved += tx_.sent_since_begin();
  if (publisher_.is_due(moved != 0, now_)) [[unlikely]]
    publisher_.publish(now_);
  return moved != 0 || holds_back();
}

/// Executes what the scenario has decided for this device. The first core acts for the port and the device;
/// each core fails its own QPs.
[[gnu::noinline]] void PollEngine::suffer() {
  std::array<trouble::Pending, DeviceTrouble::kMostPending> actions;
  const size_t count = trouble_.take(core_slot_.index, core_slot_.cores, actions);
  if (count == 0) return;
  enter_session();
  for (const trouble::Pending& action : std::span(actions).first(count)) {
    if (action.kind == trouble::Action::Kind::page_out) {
      session_.page_out(static_cast<odp::Key>(action.handle), action.va);
      continue;
    }
    if (action.kind == trouble::Action::Kind::fail_qp) {
      core_->fail_qp(static_cast<uint32_t>(action.handle), now_);
      continue;
    }
    const auto event = static_cast<transport::AsyncEvent>(action.number);
    if (event == transport::AsyncEvent::device_fatal) {
      core_->fail_qps(now_);
      if (core_slot_.index + 1 < core_slot_.cores) trouble_.pass_on(action);
    }
    if (core_slot_.index == 0) on_device_event(event);
  }
}

bool PollEngine::turn_after_sleep(bool reported) {
  const uint64_t received = counts_.rx_frames.get();
  const bool moved = turn();
  if (tx_.is_port_usable())
    port_.note_wake(static_cast<uint16_t>(core_slot_.index), reported, counts_.rx_frames.get() != received);
  return moved;
}

void PollEngine::serve_posted(transport::QueuePair* qp) {
  may_serve_posted_.store(false, std::memory_order_relaxed);
  session_.enter();
  now_ = monotonic_ns();
  tx_.begin(now_);
  ack_deferral_.note_call(now_);
  core_->send_posted(qp, now_);
  session_.leave();
}

void PollEngine::poll_deferred() {
  if (ack_deferral_.before_control_call() != AckDeferral::Action::poll) return;
  session_.enter();
  now_ = monotonic_ns();
  tx_.begin(now_);
  core_->poll(now_);
  session_.leave();
}

void PollEngine::release_due_frames(TimeNs now) {
  now_ = now;
  tx_.begin(now);
  tx_.release_due();
}

bool PollEngine::holds_back() const {
  const InjectedPackets* const injected = trouble_.injected();
  return (injected != nullptr && injected->has_work(*core_)) ||
         (receive_link_ != nullptr && receive_link_->holds_frames()) || tx_.holds_frames() ||
         (fault_model_ != nullptr && fault_model_->next_deadline() != kNever);
}

void PollEngine::enter_session() {
  if (std::exchange(is_in_session_, true)) return;
  session_.enter();
}

bool PollEngine::may_poll_do_work() const {
  return core_->has_work(now_) || session_.has_outstanding_faults();
}

void PollEngine::process(std::span<RxFrame> frames) {
  enter_session();
  if (capture_ != nullptr) [[unlikely]]
    return process_captured(frames);
  core_->on_packets(frames, now_);
}

// A call, so that process() saves no registers for it.
[[gnu::noinline]] void PollEngine::process_captured(std::span<RxFrame> frames) {
  in_core_->begin(frames);
  core_->on_packets(frames, now_);
  in_core_->end();
}

size_t PollEngine::receive(uint16_t queue) {
  std::array<rte_mbuf*, kBurst> burst;
  const size_t received = port_.receive(queue, burst);
  if (received == 0) return 0;
  counts_.rx_frames.add(received);
  size_t kept = 0;
  for (size_t i = 0; i < received; ++i) {
    rte_mbuf* frame = burst[i];
    if (i + 1 < received) __builtin_prefetch(rte_pktmbuf_mtod(burst[i + 1], const void*));
    if (capture_ != nullptr) capture_->attach(*frame, Capture::Direction::in);
    if (frame->nb_segs != 1) {
      frame = linearize(frame);
      if (frame == nullptr) continue;
    }
    burst[kept++] = frame;
  }
  if (receive_link_ != nullptr)
    receive_link_->put(std::span(burst).first(kept), now_, counts_);
  else
    distribute({burst.data(), kept});
  return received;
}

rte_mbuf* PollEngine::linearize(rte_mbuf* frame) {
  Capture::Copy copy = capture_ != nullptr ? Capture::detach(*frame) : Capture::Copy();
  frame = make_contiguous(frame, port_.pool());
  if (frame == nullptr) {
    counts_.other_dropped.add(1);
    if (capture_ != nullptr)
      capture_->settle(std::move(copy), drop_counter(&verbs::PortCounters::other_dropped));
    return nullptr;
  }
  if (capture_ != nullptr) Capture::attach(*frame, std::move(copy));
  counts_.linearized_frames.add(1);
  return frame;
}

size_t PollEngine::deliver_loopback() {
  if (!tx_.has_loopback()) return 0;
  std::array<RxFrame, kBurst> frames;
  const size_t waiting = tx_.take_loopback(frames);
  process({frames.data(), waiting});
  return waiting;
}

void PollEngine::deliver_injected(InjectedPackets& injected) {
  std::array<rte_mbuf*, kBurst> burst;
  size_t count = 0;
  do {
    for (count = 0; count < burst.size(); ++count) {
      std::array<uint8_t, InjectedPackets::kFrameBytes> bytes;
      const size_t length_bytes = injected.take(*core_, bytes);
      if (length_bytes == 0) break;
      rte_mbuf* const frame = rte_pktmbuf_alloc(port_.pool());
      if (frame == nullptr) break;  // lost, as any packet that finds no buffer
      std::copy_n(bytes.data(), length_bytes, rte_pktmbuf_mtod(frame, uint8_t*));
      set_length(frame, length_bytes);
      frame->ol_flags = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
      if (capture_ != nullptr) capture_->attach(*frame, Capture::Direction::in);
      burst[count] = frame;
    }
    if (count != 0) distribute({burst.data(), count});
  } while (count == burst.size());
}

void PollEngine::deliver_due() {
  InjectedPackets* const injected = trouble_.injected();
  if (injected != nullptr && injected->has_packets()) deliver_injected(*injected);
  std::array<ChaosLink::Held, kBurst> due;
  std::array<rte_mbuf*, kBurst> burst;
  while (const size_t count = receive_link_->take_due(now_, due)) {
    for (size_t i = 0; i < count; ++i) burst[i] = due[i].frame;
    distribute({burst.data(), count});
  }
  // Before this turn's sends: the answer precedes a NAK of the gap that the refused request leaves.
  if (injected != nullptr) injected->refuse_due(*core_, now_);
}

void PollEngine::distribute(std::span<rte_mbuf*> frames) {
  std::array<RxFrame, kBurst> roce;
  std::array<Handed, kBurst> others;
  size_t roce_frames = 0;
  size_t others_frames = 0;
  const bool alone = core_slot_.hand_over == nullptr;
  for (rte_mbuf* frame : frames) {
    if (alone && filter_.is_common_case(bytes_of(frame))) {
      roce[roce_frames++] = rx_frame_of(frame);
      continue;
    }
    const wire::FrameKind kind = wire::classify(bytes_of(frame));
    if (!admit(frame, kind)) continue;
    const uint32_t owner = owner_of(frame, kind);
    if (votes_ != nullptr && kind == wire::FrameKind::roce) vote(frame, owner);
    if (owner != core_slot_.index)
      others[others_frames++] = {frame, owner};
    else if (kind == wire::FrameKind::roce)
      roce[roce_frames++] = rx_frame_of(frame);
    else
      handle_link_frame(frame, kind);
  }
  if (roce_frames != 0) process({roce.data(), roce_frames});
  if (others_frames != 0) hand_over({others.data(), others_frames});
}

// The first core handles the link protocols of the device. A multicast packet belongs to all cores: the
// receiving core keeps it, and the others get copies.
uint32_t PollEngine::owner_of(rte_mbuf* frame, wire::FrameKind kind) {
  if (core_slot_.hand_over == nullptr) return core_slot_.index;
  if (kind != wire::FrameKind::roce) return 0;
  const uint32_t qpn = wire::peek_destination_qpn(bytes_of(frame));
  if (qpn != wire::kMulticastQpn) return transport::owner_of(qpn, core_slot_.cores);
  core_slot_.hand_over->push_copies(core_slot_.index, frame, port_.pool(), counts_);
  return core_slot_.index;
}

void PollEngine::vote(rte_mbuf* frame, uint32_t owner) {
  if ((frame->ol_flags & RTE_MBUF_F_RX_RSS_HASH) != 0) return votes_->count(frame->hash.rss, owner);
  const RssTable& table = *port_.flow_table();
  if (table.key().empty()) return;
  // Computing the hash costs hundreds of instructions, so one frame in eight votes. The distances are random
  // (a linear congruential generator), so that flows which alternate all vote.
  if (votes_to_skip_ != 0) {
    --votes_to_skip_;
    return;
  }
  vote_random_ = vote_random_ * 1664525 + 1013904223;
  votes_to_skip_ = vote_random_ >> 28;
  if (const auto hash = wire::flow_hash(bytes_of(frame), table.key(), table.hashes_ports()))
    votes_->count(*hash, owner);
}

// A burst mostly has one or two flows: the frames of one owner are pushed at once, in their order.
void PollEngine::hand_over(std::span<const Handed> frames) {
  std::array<rte_mbuf*, kBurst> of_one;
  for (uint32_t core = 0; core < core_slot_.cores; ++core) {
    size_t count = 0;
    for (const Handed& handed : frames)
      if (handed.owner == core) of_one[count++] = handed.frame;
    if (count != 0) core_slot_.hand_over->push_or_drop(core, {of_one.data(), count}, counts_, capture_);
  }
}

// The receiving core has already filtered and captured these frames.
size_t PollEngine::take_handed_over() {
  std::array<rte_mbuf*, kBurst> burst;
  const size_t taken = core_slot_.hand_over->take(core_slot_.index, burst);
  std::array<RxFrame, kBurst> roce;
  size_t roce_frames = 0;
  for (size_t i = 0; i < taken; ++i) {
    const wire::FrameKind kind = wire::classify(bytes_of(burst[i]));
    if (kind == wire::FrameKind::roce)
      roce[roce_frames++] = rx_frame_of(burst[i]);
    else
      handle_link_frame(burst[i], kind);
  }
  if (roce_frames != 0) process({roce.data(), roce_frames});
  return taken;
}

void PollEngine::drop(rte_mbuf* frame, Count PortCounts::*counter, uint64_t verbs::PortCounters::*why) {
  (counts_.*counter).add(1);
  if (capture_ != nullptr) capture_->settle(*frame, drop_counter(why));
  rte_pktmbuf_free(frame);
}

// Returns false, with the frame freed, if it is not addressed to this device.
bool PollEngine::admit(rte_mbuf* frame, wire::FrameKind kind) {
  switch (filter_.admit(bytes_of(frame), kind)) {
    case wire::Admission::accepted:
      return true;
    case wire::Admission::wrong_vlan:
      drop(frame, &PortCounts::wrong_vlan, &verbs::PortCounters::wrong_vlan);
      break;
    case wire::Admission::wrong_address:
      drop(frame, &PortCounts::wrong_address, &verbs::PortCounters::wrong_address);
      break;
  }
  return false;
}

template <typename Write>
bool PollEngine::write_own_frame(Write write) {
  rte_mbuf* frame = rte_pktmbuf_alloc(port_.pool());
  if (frame == nullptr) return false;
  const size_t length_bytes =
      write(std::span<uint8_t>{rte_pktmbuf_mtod(frame, uint8_t*), rte_pktmbuf_tailroom(frame)});
  if (length_bytes == 0) {
    rte_pktmbuf_free(frame);
    return false;
  }
  set_length(frame, length_bytes);
  return tx_.enter_own(frame);
}

void PollEngine::handle_link_frame(rte_mbuf* frame, wire::FrameKind kind) {
  wire::NeighbourMessage message;
  switch (kind) {
    case wire::FrameKind::arp:
      settle(frame);
      handle_arp(frame);
      break;
    case wire::FrameKind::ipv6_other:
      if (!wire::parse_neighbour_message(bytes_of(frame), message)) return handle_echo(frame);
      settle(frame);
      handle_neighbour_message(message);
      break;
    case wire::FrameKind::ipv4_other:
      return handle_echo(frame);
    default:
      return drop(frame, &PortCounts::other_dropped, &verbs::PortCounters::other_dropped);
  }
  rte_pktmbuf_free(frame);
}

void PollEngine::handle_arp(rte_mbuf* frame) {
  counts_.arp_in.add(1);
  const auto write = [&](std::span<uint8_t> to) {
    const size_t length_bytes = neighbours_.on_arp(bytes_of(frame), now_, to);
    return length_bytes != 0 && link_answers_.take(now_) ? length_bytes : 0;
  };
  if (write_own_frame(write)) counts_.arp_out.add(1);
}

void PollEngine::handle_neighbour_message(const wire::NeighbourMessage& message) {
  counts_.nd_in.add(1);
  const auto write = [&](std::span<uint8_t> to) {
    const size_t length_bytes = neighbours_.on_neighbour_message(message, now_, to);
    return length_bytes != 0 && link_answers_.take(now_) ? length_bytes : 0;
  };
  if (write_own_frame(write)) counts_.nd_out.add(1);
}

// The reply is written over the request.
void PollEngine::handle_echo(rte_mbuf* frame) {
  const size_t length_bytes = wire::answer_echo(bytes_of(frame), addresses_.mac(), addresses_.gids());
  if (length_bytes == 0) return drop(frame, &PortCounts::other_dropped, &verbs::PortCounters::other_dropped);
  settle(frame);
  counts_.icmp_in.add(1);
  if (!echo_answers_.take(now_)) return rte_pktmbuf_free(frame);
  set_length(frame, length_bytes);
  frame->ol_flags = 0;
  if (tx_.enter_own(frame)) counts_.icmp_out.add(1);
}

void PollEngine::send_neighbour_requests() {
  bool ipv6 = false;
  const auto write = [&](std::span<uint8_t> to) { return neighbours_.poll(now_, to, ipv6); };
  if (write_own_frame(write)) (ipv6 ? counts_.nd_out : counts_.arp_out).add(1);
}

void PollEngine::on_qp_event(uint32_t qpn, void* user, transport::AsyncEvent event) {
  if (transport::EventSink* sink = events_.load(std::memory_order_acquire))
    sink->on_qp_event(qpn, user, event);
}

void PollEngine::on_cq_event(transport::CompletionQueue* cq, transport::AsyncEvent event) {
  if (transport::EventSink* sink = events_.load(std::memory_order_acquire)) sink->on_cq_event(cq, event);
}

void PollEngine::on_completion(transport::CompletionQueue* cq) {
  if (transport::EventSink* sink = events_.load(std::memory_order_acquire)) sink->on_completion(cq);
}

void PollEngine::on_srq_event(transport::SharedReceiveQueue* srq, transport::AsyncEvent event) {
  if (transport::EventSink* sink = events_.load(std::memory_order_acquire)) sink->on_srq_event(srq, event);
}

/// An expired entry says nothing of the neighbour.
void PollEngine::add_neighbour(const wire::Gid& peer, status::FailureRecord& record) const {
  const std::optional<wire::Gid> hop = addresses_.next_hop(peer);
  if (!hop) return;
  wire::MacAddress mac;
  switch (neighbours_.lookup(*hop, now_, mac)) {
    case NeighbourState::reachable:
      record.neighbour = status::Neighbour::reachable;
      record.neighbour_mac = mac.bytes;
      return;
    case NeighbourState::incomplete:
    case NeighbourState::failed:
      record.neighbour = status::Neighbour::unanswered;
      return;
    case NeighbourState::absent:
      return;
  }
}

status::FailureCause PollEngine::on_qp_failure(const transport::QpFailure& failure) {
  status::FailureRecord record = transport::record_of(failure, port_link_up(), now_);
  if (failure.is_connected) add_neighbour(failure.peer, record);
  publisher_.failures().add(record);
  if (wants_failures()) log_failure(device_name_, record, now_);
  return record.cause;
}

void PollEngine::on_frame_dropped(const RxFrame& frame, size_t counter) {
  in_core_->note_dropped(frame.handle, static_cast<DropCounter>(counter));
}

void PollEngine::on_device_event(transport::AsyncEvent event) {
  if (transport::EventSink* sink = events_.load(std::memory_order_acquire)) sink->on_device_event(event);
}

}  // namespace faultline::glue
