// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/frame_switch.hpp"

#include <algorithm>
#include <utility>

#include <rte_mbuf.h>
#include <spdlog/fmt/fmt.h>

#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/eal/mbuf_view.hpp"
#include "pmd_glue/engine/poll_engine.hpp"
#include "stack/base/clock.hpp"
#include "stack/base/log.hpp"

namespace faultline::switching {
namespace {

/// Returns 0 without a pool; no ring can be begun then either.
size_t frames_of(const rte_mempool* pool) {
  return pool != nullptr ? pool->size : 0;
}

}  // namespace

FrameSwitch::FrameSwitch(const glue::Config& config, glue::Inbox& inbox)
    : config_(config), pool_(glue::frame_pool(config)), room_(frames_of(pool_)), rings_(inbox) {}

FrameSwitch::~FrameSwitch() {
  for (PortIndex index = 0; index < kMaxPorts; ++index) drop_waiting(index);
}

bool FrameSwitch::open_uplink(const glue::PortConfig& wanted, std::string& error) {
  constexpr PortIndex index = kMaxPorts - 1;
  glue::DeviceConfig device;
  device.name = "uplink";
  device.port = wanted;
  Port& port = ports_[index];
  port.uplink = glue::EthernetPort::open(config_, device, error);
  if (port.uplink == nullptr) return false;
  // The port must receive the frames for all stations.
  port.uplink->receive_for_all();
  mtu_bytes_ = std::min(mtu_bytes_, glue::port_mtu_bytes(device));
  port.taken = true;
  uplink_ = index;
  stations_.set_uplink(index);
  room_.set_ports(++ports_taken_);
  return true;
}

// A port is used again as late as possible: peers may not know yet that its process has ended.
std::optional<PortIndex> FrameSwitch::find_free() const {
  std::optional<PortIndex> best;
  for (PortIndex index = 0; index < glue::kMostSeats; ++index)
    if (!ports_[index].taken && (!best || ports_[index].last_taken < ports_[*best].last_taken)) best = index;
  return best;
}

std::optional<PortIndex> FrameSwitch::take_port(std::optional<PortIndex> wanted, std::string& error) {
  const bool has_wanted = wanted && *wanted < glue::kMostSeats && !ports_[*wanted].taken;
  const auto index = has_wanted ? wanted : find_free();
  if (!index) {
    error = fmt::format("the wire has {} devices, which is all it can", glue::kMostSeats);
    return std::nullopt;
  }
  Port& port = ports_[*index];
  port.taken = true;
  port.last_taken = ++seats_taken_;
  room_.set_ports(++ports_taken_);
  return index;
}

bool FrameSwitch::begin_ring(PortIndex index, int memory, std::unique_ptr<glue::Inbox> inbox) {
  if (pool_ == nullptr) return false;
  auto ring = glue::SharedRing::begin(memory, glue::SharedRing::kSeat, glue::kSideOfSwitch, std::move(inbox),
                                      glue::kSwitchSeat);
  if (ring == nullptr) return false;
  ports_[index].ring = std::move(ring);
  rings_.add(index, *ports_[index].ring);
  return true;
}

void FrameSwitch::leave(PortIndex index) {
  // Forwards the frames that the program sent before it ended, while it still has its address.
  constexpr int kMostBursts = 64;
  for (int bursts = 0; bursts < kMostBursts && receive(index) != 0; ++bursts) flush_all();
  connections_.end(index, [&](std::span<const uint8_t> frame) { send_as(index, frame); });
  stations_.detach(index);
  pairs_.leave(index);
  free_port(index);
}

void FrameSwitch::give_back(PortIndex index) {
  free_port(index);
}

void FrameSwitch::free_port(PortIndex index) {
  Port& port = ports_[index];
  rings_.remove(index);
  port.ring.reset();
  port.taken = false;
  port.is_offender = false;
  port.dropped = 0;
  drop_waiting(index);
  room_.set_ports(--ports_taken_);
}

void FrameSwitch::drop_waiting(PortIndex index) {
  Port& port = ports_[index];
  room_.leave(index, port.waiting.size());
  rte_pktmbuf_free_bulk(port.waiting.data(), static_cast<unsigned>(port.waiting.size()));
  port.waiting.clear();
}

bool FrameSwitch::turn() {
  size_t moved = 0;
  rings_.receive([&](uint16_t seat) {
    moved += receive(seat);
    return true;
  });
  if (uplink_) moved += receive(*uplink_);
  moved += flush_all();
  return moved != 0;
}

size_t FrameSwitch::receive(PortIndex from) {
  std::array<rte_mbuf*, kBurst> burst;
  Port& port = ports_[from];
  const bool is_uplink = port.uplink != nullptr;
  if (!is_uplink && port.ring == nullptr) return 0;
  const size_t received = is_uplink ? port.uplink->receive(0, burst) : port.ring->receive(pool_, from, burst);
  for (size_t i = 0; i < received; ++i) {
    if (i + 1 < received) __builtin_prefetch(rte_pktmbuf_mtod(burst[i + 1], const void*));
    rte_mbuf* frame = glue::make_contiguous(burst[i], pool_);
    if (frame != nullptr) forward(frame, from);
  }
  if (!is_uplink && port.ring->violation() != nullptr) note_offender(from);
  return received;
}

void FrameSwitch::note_offender(PortIndex index) {
  Port& port = ports_[index];
  if (std::exchange(port.is_offender, true)) return;
  log().error("the ring of port {} is closed: its process {}", index, port.ring->violation());
  offenders_.push_back(index);
}

void FrameSwitch::forward(rte_mbuf* frame, PortIndex from) {
  if (const auto marker = wire::parse_link_marker(glue::bytes_of(frame)))
    return forward_marker(frame, *marker, from);
  const Verdict verdict = stations_.decide(glue::bytes_of(frame), from);
  // No frame can reach a station without a link, so its address is not announced; the sender asks again.
  if (verdict.answer) return any_link_up(verdict.to) ? send_answer(frame, from) : rte_pktmbuf_free(frame);
  const size_t copies = verdict.to.count();
  if (copies == 0) {
    ++counters_.drops[static_cast<size_t>(verdict.drop)];
    return rte_pktmbuf_free(frame);
  }
  note_connection(frame, from);
  counters_.forwarded += copies;
  // Each port frees its frames, so it needs a reference.
  frame->ol_flags = 0;
  rte_mbuf_refcnt_update(frame, static_cast<int16_t>(copies - 1));
  if (copies == 1) note_pair(glue::bytes_of(frame), from, static_cast<PortIndex>(verdict.to._Find_first()));
  for_each_port(verdict.to, [&](PortIndex to) { put(frame, to); });
}

// Management datagrams and neighbours' messages always take the way over the switch, so they make no pair.
void FrameSwitch::note_pair(std::span<const uint8_t> frame, PortIndex from, PortIndex to) {
  if (from == to || from == uplink_ || to == uplink_ || pairs_.is_known(from, to)) return;
  if (wire::peek_unicast_receiver(frame)) pairs_.add(from, to);
}

// The marker follows the sender's earlier frames, which wait for the same port.
void FrameSwitch::forward_marker(rte_mbuf* frame, const wire::LinkMarker& marker, PortIndex from) {
  if (marker.from_seat == from && marker.to_seat < glue::kMostSeats && ports_[marker.to_seat].taken)
    return put(frame, marker.to_seat);
  ++counters_.drops[static_cast<size_t>(Drop::foreign_source)];
  rte_pktmbuf_free(frame);
}

void FrameSwitch::note_connection(rte_mbuf* frame, PortIndex from) {
  const auto bytes = glue::bytes_of(frame);
  if (!wire::may_have_cm_message(bytes) || wire::classify(bytes) != wire::FrameKind::roce ||
      wire::peek_destination_qpn(bytes) != wire::kManagementQpn)
    return;
  if (const auto message = wire::peek_cm_message(bytes)) connections_.note(bytes, *message, from);
}

void FrameSwitch::send_as(PortIndex from, std::span<const uint8_t> bytes) {
  rte_mbuf* const frame = rte_pktmbuf_alloc(pool_);
  if (frame == nullptr) return;
  std::copy(bytes.begin(), bytes.end(), rte_pktmbuf_mtod(frame, uint8_t*));
  glue::set_length(frame, bytes.size());
  forward(frame, from);
}

bool FrameSwitch::is_up(const Port& port) const {
  return port.uplink != nullptr ? port.uplink->link_up() : port.ring != nullptr && port.ring->takes_frames();
}

bool FrameSwitch::any_link_up(const PortSet& ports) const {
  bool is_any = false;
  for_each_port(ports, [&](PortIndex index) { is_any |= is_up(ports_[index]); });
  return is_any;
}

void FrameSwitch::send_answer(rte_mbuf* question, PortIndex to) {
  rte_mbuf* reply = rte_pktmbuf_alloc(pool_);
  if (reply != nullptr) {
    const size_t length_bytes =
        stations_.answer(glue::bytes_of(question), monotonic_ns(),
                         std::span<uint8_t>{rte_pktmbuf_mtod(reply, uint8_t*), rte_pktmbuf_tailroom(reply)});
    if (length_bytes == 0) {
      rte_pktmbuf_free(reply);
    } else {
      glue::set_length(reply, length_bytes);
      put(reply, to);
      ++counters_.answered;
    }
  }
  rte_pktmbuf_free(question);
}

void FrameSwitch::put(rte_mbuf* frame, PortIndex to) {
  if (const auto admission = room_.admit(to); admission != WaitingRoom::Admission::admitted) {
    note_drop(to, admission);
    return rte_pktmbuf_free(frame);
  }
  Port& port = ports_[to];
  port.waiting.push_back(frame);
  if (!std::exchange(port.is_queued, true)) queued_.push_back(to);
}

void FrameSwitch::note_drop(PortIndex to, WaitingRoom::Admission why) {
  ++(why == WaitingRoom::Admission::port_full ? counters_.full : counters_.crowded);
  if (ports_[to].dropped++ == 0)
    log().warn("port {} takes no frames, and {} wait for it: more are dropped; is its program stopped?", to,
               room_.waiting(to));
}

size_t FrameSwitch::flush_all() {
  size_t moved = 0;
  size_t kept = 0;
  for (const PortIndex index : queued_) {
    moved += flush(index);
    ports_[index].is_queued = !ports_[index].waiting.empty();
    if (ports_[index].is_queued) queued_[kept++] = index;
  }
  queued_.resize(kept);
  return moved;
}

// Frames for a port without a link are dropped, as a switch would.
size_t FrameSwitch::flush(PortIndex index) {
  Port& port = ports_[index];
  const bool up = is_up(port);
  size_t sent = 0;
  if (port.uplink != nullptr)
    sent = port.uplink->transmit(0, port.waiting);
  else if (up)
    sent = port.ring->transmit(port.waiting);
  room_.leave(index, sent);
  if (sent != 0) port.dropped = 0;
  if (sent == port.waiting.size())
    port.waiting.clear();
  else if (sent == 0 && !up)
    drop_waiting(index);
  else
    port.waiting.erase(port.waiting.begin(), port.waiting.begin() + static_cast<ptrdiff_t>(sent));
  return sent;
}

void FrameSwitch::look_after(TimeNs now) {
  if (now < next_look_) return;
  next_look_ = now + kLookNs;
  for (PortIndex index = 0; index < glue::kMostSeats; ++index)
    if (ports_[index].ring != nullptr && !rings_.is_active(index) && ports_[index].ring->has_frames())
      rings_.activate(index);
}

void FrameSwitch::set_asleep(bool asleep) {
  if (asleep)
    rings_.arm();
  else
    rings_.disarm();
}

}  // namespace faultline::switching
