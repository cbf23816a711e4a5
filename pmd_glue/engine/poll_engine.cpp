// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/poll_engine.hpp"

#include <algorithm>
#include <cerrno>
#include <random>
#include <utility>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <time.h>

#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/mbuf_view.hpp"
#include "pmd_glue/engine/reasons.hpp"
#include "pmd_glue/wires/switch_protocol.hpp"
#include "stack/base/clock.hpp"
#include "stack/verbs/objects/limits.hpp"
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
                                  const CoreSlot& seat, std::pmr::memory_resource* qp_memory) {
  transport::CoreConfig core = config.core;
  core.qp_memory = qp_memory;
  core.core_count = seat.cores;
  core.core_index = seat.index;
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
  core.verify_icrc = config.icrc;
  if (!config.icrc) core.wire_checksums |= static_cast<uint8_t>(wire::Checksums::no_icrc);
  return core;
}

// Each core and direction has a separate random generator.
uint64_t chaos_seed(uint64_t seed, const CoreSlot& seat, unsigned what) {
  return chaos::Random(seed + uint64_t{seat.index} * 4 + what).next();
}

std::unique_ptr<ChaosLink> chaos_link(const ChaosConfig& chaos, bool wanted, const CoreSlot& seat,
                                      unsigned direction, rte_mempool* pool) {
  if (!wanted || chaos.link.harmless()) return nullptr;
  chaos::LinkModelConfig link = chaos.link;
  link.seed = chaos_seed(link.seed, seat, direction);
  return std::make_unique<ChaosLink>(link, pool);
}

std::unique_ptr<chaos::FaultModel> fault_model(const ChaosConfig& chaos, const CoreSlot& seat,
                                               odp::MemoryAccess& memory) {
  if (chaos.faults.harmless()) return nullptr;
  chaos::FaultModelConfig faults = chaos.faults;
  faults.seed = chaos_seed(faults.seed, seat, 2);
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
                       Capture* capture, const CoreSlot& seat)
    : port_(port),
      session_(session),
      capture_(capture),
      seat_(seat),
      addresses_(addresses),
      attachment_(attachment),
      filter_(addresses.mac(), addresses.vlan(), addresses.gids()),
      neighbours_(addresses),
      receive_link_(chaos_link(device.chaos, device.chaos.receive, seat, 0, port.pool())),
      transmit_link_(chaos_link(device.chaos, device.chaos.transmit, seat, 1, port.pool())),
      fault_model_(fault_model(device.chaos, seat, session)),
      now_(monotonic_ns()),
      core_(std::make_unique<transport::Core>(
          core_config(config, device, attachment, port, seat, qp_memory_.resource()),
          fault_model_ != nullptr ? static_cast<odp::MemoryAccess&>(*fault_model_)
                                  : static_cast<odp::MemoryAccess&>(session),
          static_cast<transport::Port&>(*this), static_cast<transport::EventSink*>(this))),
      device_name_(device.name) {
  if (port.offloads_ipv4_checksum()) tx_offload_flags_ |= RTE_MBUF_F_TX_IP_CKSUM;
  if (port.offloads_udp_checksum()) tx_offload_flags_ |= RTE_MBUF_F_TX_UDP_CKSUM;
  port_usable_ = port.started();
  if (port.link_holds_frames())
    gate_.emplace(turns_, [this] {
      const bool moved = turn();
      session_.leave();
      return moved;
    });
}

PollEngine::~PollEngine() {
  core_.reset();
  for (; loopback_head_ != loopback_tail_; ++loopback_head_)
    rte_pktmbuf_free(loopback_[loopback_head_ % kLoopbackFrames]);
}

bool PollEngine::turn(Turn whose) {
  session_.enter();
  now_ = monotonic_ns();
  last_turn_.store(now_, std::memory_order_relaxed);
  sent_this_turn_ = 0;
  if (whose == Turn::of_program) caller_tracker_.note_return(now_);

  if (fault_model_ != nullptr) fault_model_->advance(now_);
  size_t moved = deliver_loopback();
  if (seat_.hand_over != nullptr) moved += take_handed_over();
  if (port_usable_)
    for (uint16_t queue = 0; queue < port_.receive_queues(); ++queue)
      if (port_.receiver_of(queue) == seat_.index) moved += receive(queue);
  if (receive_link_ != nullptr) deliver_due();
  if (whose == Turn::of_program) may_send_now_.store(moved <= kFewFrames, std::memory_order_relaxed);
  if (moved != 0 && whose == Turn::of_program && completion_goes_first()) {
    ++owed_polls_;
  } else {
    owed_polls_ = 0;
    core_->poll(now_);
  }
  if (now_ >= neighbours_.next_deadline()) ask_neighbours();
  if (transmit_link_ != nullptr) send_due();

  moved += sent_this_turn_;
  return moved != 0 || holds_back();
}

void PollEngine::send_now(transport::QueuePair* qp) {
  may_send_now_.store(false, std::memory_order_relaxed);
  session_.enter();
  now_ = monotonic_ns();
  caller_tracker_.note_return(now_);
  core_->send_posted(qp, now_);
  session_.leave();
}

void PollEngine::send_owed() {
  if (owed_polls_ == 0) return;
  session_.enter();
  now_ = monotonic_ns();
  owed_polls_ = 0;
  core_->poll(now_);
  session_.leave();
}

/// Returns whether transmission is deferred, so that the program polls its completion first. More than one
/// completion in a turn is a stream, in which the program does not wait for each message.
bool PollEngine::completion_goes_first() {
  const uint64_t seen = std::exchange(receives_seen_, core_->receives_completed());
  const uint64_t completed = receives_seen_ - seen;
  if (completed != 0) caller_tracker_.note_given(now_);
  return completed == 1 && owed_polls_ < kMostOwedPolls && caller_tracker_.is_prompt();
}

bool PollEngine::holds_back() const {
  return (receive_link_ != nullptr && receive_link_->holds_frames()) || holds_frames_to_send() ||
         (fault_model_ != nullptr && fault_model_->next_deadline() != kNever);
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
    if (capture_ != nullptr) capture_->take(*frame, Capture::Direction::in);
    if (frame->nb_segs != 1) {
      frame = make_contiguous(frame, port_.pool());
      if (frame == nullptr) {
        counts_.other_dropped.add(1);
        continue;
      }
      counts_.linearized_frames.add(1);
    }
    burst[kept++] = frame;
  }
  if (receive_link_ != nullptr)
    put(*receive_link_, {burst.data(), kept});
  else
    distribute({burst.data(), kept});
  return received;
}

void PollEngine::put(ChaosLink& link, std::span<rte_mbuf* const> frames) {
  ChaosCounts counts;
  link.put(frames, now_, counts);
  counts_.chaos_lost.add(counts.lost);
  counts_.chaos_duplicated.add(counts.duplicated);
  counts_.chaos_corrupted.add(counts.corrupted);
  counts_.chaos_delayed.add(counts.delayed);
  counts_.chaos_marked.add(counts.marked);
}

void PollEngine::deliver_due() {
  std::array<ChaosLink::Held, kBurst> due;
  std::array<rte_mbuf*, kBurst> burst;
  while (const size_t count = receive_link_->take_due(now_, due)) {
    for (size_t i = 0; i < count; ++i) burst[i] = due[i].frame;
    distribute({burst.data(), count});
  }
}

void PollEngine::distribute(std::span<rte_mbuf*> frames) {
  std::array<RxFrame, kBurst> roce;
  std::array<Handed, kBurst> others;
  size_t roce_frames = 0;
  size_t others_frames = 0;
  const bool alone = seat_.hand_over == nullptr;
  for (rte_mbuf* frame : frames) {
    if (alone && filter_.is_plainly_own(bytes_of(frame))) {
      roce[roce_frames++] = rx_frame_of(frame);
      continue;
    }
    const wire::FrameKind kind = wire::classify(bytes_of(frame));
    if (!admit(frame, kind)) continue;
    const uint32_t owner = owner_of(frame, kind);
    if (owner != seat_.index)
      others[others_frames++] = {frame, owner};
    else if (kind == wire::FrameKind::roce)
      roce[roce_frames++] = rx_frame_of(frame);
    else
      handle_link_frame(frame, kind);
  }
  if (roce_frames != 0) core_->on_packets({roce.data(), roce_frames}, now_);
  if (others_frames != 0) hand_over({others.data(), others_frames});
}

// The first core handles the link protocols of the device. A multicast packet belongs to all cores: the
// receiving core keeps it, and the others get copies.
uint32_t PollEngine::owner_of(rte_mbuf* frame, wire::FrameKind kind) {
  if (seat_.hand_over == nullptr) return seat_.index;
  if (kind != wire::FrameKind::roce) return 0;
  const uint32_t qpn = wire::peek_destination_qpn(bytes_of(frame));
  if (qpn != wire::kMulticastQpn) return transport::owner_of(qpn, seat_.cores);
  hand_over_copies(frame);
  return seat_.index;
}

void PollEngine::hand_over_copies(const rte_mbuf* frame) {
  for (uint32_t core = 0; core < seat_.cores; ++core) {
    if (core == seat_.index) continue;
    if (rte_mbuf* copy = rte_pktmbuf_copy(frame, port_.pool(), 0, UINT32_MAX)) push_to_core(core, {&copy, 1});
  }
}

// A burst mostly has one or two flows: the frames of one owner are pushed at once, in their order.
void PollEngine::hand_over(std::span<const Handed> frames) {
  std::array<rte_mbuf*, kBurst> of_one;
  for (uint32_t core = 0; core < seat_.cores; ++core) {
    size_t count = 0;
    for (const Handed& handed : frames)
      if (handed.owner == core) of_one[count++] = handed.frame;
    if (count != 0) push_to_core(core, {of_one.data(), count});
  }
}

void PollEngine::push_to_core(uint32_t core, std::span<rte_mbuf*> frames) {
  const size_t pushed = seat_.hand_over->push(core, frames);
  counts_.handed_over.add(pushed);
  counts_.hand_over_dropped.add(frames.size() - pushed);
  rte_pktmbuf_free_bulk(frames.data() + pushed, static_cast<unsigned>(frames.size() - pushed));
}

// The receiving core has already filtered and captured these frames.
size_t PollEngine::take_handed_over() {
  std::array<rte_mbuf*, kBurst> burst;
  const size_t taken = seat_.hand_over->take(seat_.index, burst);
  std::array<RxFrame, kBurst> roce;
  size_t roce_frames = 0;
  for (size_t i = 0; i < taken; ++i) {
    const wire::FrameKind kind = wire::classify(bytes_of(burst[i]));
    if (kind == wire::FrameKind::roce)
      roce[roce_frames++] = rx_frame_of(burst[i]);
    else
      handle_link_frame(burst[i], kind);
  }
  if (roce_frames != 0) core_->on_packets({roce.data(), roce_frames}, now_);
  return taken;
}

// Returns false, with the frame freed, if it is not addressed to this device.
bool PollEngine::admit(rte_mbuf* frame, wire::FrameKind kind) {
  switch (filter_.admit(bytes_of(frame), kind)) {
    case wire::Admission::accepted:
      return true;
    case wire::Admission::wrong_vlan:
      counts_.wrong_vlan.add(1);
      break;
    case wire::Admission::wrong_address:
      counts_.wrong_address.add(1);
      break;
  }
  rte_pktmbuf_free(frame);
  return false;
}

template <typename Write>
bool PollEngine::send_written(Write write) {
  rte_mbuf* frame = rte_pktmbuf_alloc(port_.pool());
  if (frame == nullptr) return false;
  const size_t length_bytes =
      write(std::span<uint8_t>{rte_pktmbuf_mtod(frame, uint8_t*), rte_pktmbuf_tailroom(frame)});
  if (length_bytes == 0) {
    rte_pktmbuf_free(frame);
    return false;
  }
  set_length(frame, length_bytes);
  return send_one(frame);
}

void PollEngine::handle_link_frame(rte_mbuf* frame, wire::FrameKind kind) {
  wire::NeighbourMessage message;
  switch (kind) {
    case wire::FrameKind::arp:
      handle_arp(frame);
      break;
    case wire::FrameKind::ipv6_other:
      if (!wire::parse_neighbour_message(bytes_of(frame), message)) return handle_echo(frame);
      handle_neighbour_message(message);
      break;
    case wire::FrameKind::ipv4_other:
      return handle_echo(frame);
    default:
      counts_.other_dropped.add(1);
      break;
  }
  rte_pktmbuf_free(frame);
}

void PollEngine::handle_arp(rte_mbuf* frame) {
  counts_.arp_in.add(1);
  const auto write = [&](std::span<uint8_t> to) {
    const size_t length_bytes = neighbours_.on_arp(bytes_of(frame), now_, to);
    return length_bytes != 0 && link_answers_.take(now_) ? length_bytes : 0;
  };
  if (send_written(write)) counts_.arp_out.add(1);
}

void PollEngine::handle_neighbour_message(const wire::NeighbourMessage& message) {
  counts_.nd_in.add(1);
  const auto write = [&](std::span<uint8_t> to) {
    const size_t length_bytes = neighbours_.on_neighbour_message(message, now_, to);
    return length_bytes != 0 && link_answers_.take(now_) ? length_bytes : 0;
  };
  if (send_written(write)) counts_.nd_out.add(1);
}

// The reply is written over the request.
void PollEngine::handle_echo(rte_mbuf* frame) {
  const size_t length_bytes = wire::answer_echo(bytes_of(frame), addresses_.mac(), addresses_.gids());
  if (length_bytes == 0) {
    counts_.other_dropped.add(1);
    rte_pktmbuf_free(frame);
    return;
  }
  counts_.icmp_in.add(1);
  if (!echo_answers_.take(now_)) return rte_pktmbuf_free(frame);
  set_length(frame, length_bytes);
  frame->ol_flags = 0;
  if (send_one(frame)) counts_.icmp_out.add(1);
}

void PollEngine::ask_neighbours() {
  bool ipv6 = false;
  const auto write = [&](std::span<uint8_t> to) { return neighbours_.poll(now_, to, ipv6); };
  if (send_written(write)) (ipv6 ? counts_.nd_out : counts_.arp_out).add(1);
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

void PollEngine::on_qp_failure(const transport::QpFailure& failure) {
  if (wants_reasons()) log_reason(device_name_, text_of(failure), now_);
}

void PollEngine::on_device_event(transport::AsyncEvent event) {
  if (transport::EventSink* sink = events_.load(std::memory_order_acquire)) sink->on_device_event(event);
}

}  // namespace faultline::glue
