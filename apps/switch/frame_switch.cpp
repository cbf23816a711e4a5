// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/frame_switch.hpp"

#include <algorithm>
#include <utility>

#include <rte_mbuf.h>
#include <spdlog/fmt/fmt.h>

#include "pmd_glue/config/port_kinds.hpp"
#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/eal/mbuf_view.hpp"
#include "pmd_glue/engine/poll_engine.hpp"
#include "stack/base/clock.hpp"
#include "stack/base/log.hpp"
#include "stack/wire/link/address_text.hpp"

namespace faultline::switching {
namespace {

/// Returns 0 without a pool; no ring can be begun then either.
size_t frames_of(const rte_mempool* pool) {
  return pool != nullptr ? pool->size : 0;
}

// Of Ethernet, with a VLAN's tag.
constexpr uint32_t kTapHeaderBytes = 18;
// Of Ethernet, beside the frame's own bytes: preamble, checksum, gap.
constexpr uint32_t kLinkOverheadBytes = 24;

std::string text_of(const std::vector<glue::IpNetwork>& addresses) {
  std::string text;
  for (const glue::IpNetwork& address : addresses)
    text += (text.empty() ? "" : ",") + wire::text_of(address.gid);
  return text;
}

uint32_t link_bytes(const rte_mbuf* frame) {
  return rte_pktmbuf_pkt_len(frame) + kLinkOverheadBytes;
}

}  // namespace

FrameSwitch::FrameSwitch(const glue::Config& config, glue::Inbox& inbox)
    : config_(config), pool_(glue::frame_pool(config)), room_(frames_of(pool_)), rings_(inbox) {
  shares_.set_quantum(mtu_bytes_ + kTapHeaderBytes + kLinkOverheadBytes);
}

FrameSwitch::~FrameSwitch() {
  for (PortIndex index = 0; index < kMaxPorts; ++index) {
    drop_waiting(index);
    drop_backlog(index);
  }
}

bool FrameSwitch::open_uplink(const glue::DeviceConfig& device, std::string& error) {
  constexpr PortIndex index = kUplinkPort;
  Port& port = ports_[index];
  port.uplink = Uplink::open(config_, device, error);
  if (port.uplink == nullptr) return false;
  mtu_bytes_ = std::min(mtu_bytes_, port.uplink->mtu_bytes());
  shares_.set_quantum(mtu_bytes_ + kTapHeaderBytes + kLinkOverheadBytes);
  port.taken = true;
  uplink_ = index;
  const glue::PortKindRow& row = glue::row_of(device.port.kind);
  uplink_name_ = fmt::format("{}:{}", row.name,
                             device.has_host_addresses ? text_of(device.addresses)
                             : row.address != nullptr  ? device.port.*row.address
                                                       : device.name);
  stations_.set_uplink(index);
  stations_.set_outside_groups(*port.uplink);
  room_.set_ports(++ports_taken_);
  return true;
}

bool FrameSwitch::open_host(const glue::DeviceConfig& device, const std::string& exception,
                            std::string& error) {
  const glue::IpNetwork& address = device.addresses.at(0);
  const Uplink& uplink = *ports_[kUplinkPort].uplink;
  // Without a `mac` the host has the NIC's, which a cloud's network demands.
  const wire::MacAddress mac = device.mac == glue::mac_of(address.gid) ? uplink.mac() : device.mac;
  if (uplink.sends_by_socket()) {
    stations_.set_host_of_sockets(device.addresses, mac, uplink.most_window_packets());
    is_uplink_up_ = uplink.link_up();
    stations_.note_uplink_state(is_uplink_up_);
    return true;
  }
  stations_.set_host(address, mac);
  if (exception.empty()) return true;
  Port& port = ports_[kExceptionPort];
  port.tap = ExceptionTap::open(exception, mac,
                                std::min(uplink.mtu_bytes(), glue::kBufferBytes - kTapHeaderBytes), error);
  if (port.tap == nullptr) {
    error = fmt::format("faultline-switch: {}: exception: {}", config_.path, error);
    return false;
  }
  port.taken = true;
  exception_name_ = exception;
  stations_.set_exception(kExceptionPort);
  room_.set_ports(++ports_taken_);
  return true;
}

void FrameSwitch::set_rates(const Rates& rates) {
  rates_ = rates;
  uplink_rate_ = RateLimit(rates.uplink_mbps);
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
  port.rate = RateLimit(rates_.program_mbps);
  port.is_rate_limited = false;
  port.counters = {};
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
  for (int bursts = 0; bursts < kMostBursts; ++bursts) {
    read_ring(index);
    auto& backlog = ports_[index].backlog;
    if (backlog.empty()) break;
    for (rte_mbuf* const frame : std::exchange(backlog, {})) forward(frame, index);
    flush_all();
  }
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
  shares_.remove(index);
  drop_backlog(index);
  port.ring.reset();
  port.taken = false;
  port.is_offender = false;
  port.complained_at = 0;
  drop_waiting(index);
  room_.set_ports(--ports_taken_);
}

void FrameSwitch::drop_waiting(PortIndex index) {
  Port& port = ports_[index];
  room_.leave(index, port.waiting.size());
  rte_pktmbuf_free_bulk(port.waiting.data(), static_cast<unsigned>(port.waiting.size()));
  port.waiting.clear();
}

void FrameSwitch::drop_backlog(PortIndex index) {
  for (rte_mbuf* const frame : std::exchange(ports_[index].backlog, {})) rte_pktmbuf_free(frame);
}

bool FrameSwitch::turn(TimeNs now) {
  now_ = now;
  takes_nothing_ = false;
  rings_.receive([&](uint16_t seat) {
    read_ring(seat);
    return true;
  });
  size_t moved = shares_.serve(
      kFramesOfTurn, [&](PortIndex from, uint32_t most_bytes) { return forward_first(from, most_bytes); });
  if (uplink_) moved += receive(*uplink_);
  if (exception_turns_ != 0) {
    const size_t received = receive(kExceptionPort);
    exception_turns_ = received != 0 ? kExceptionTurns : exception_turns_ - 1;
    moved += received;
  }
  moved += flush_all();
  return moved != 0;
}

size_t FrameSwitch::receive(PortIndex from) {
  std::array<rte_mbuf*, kBurst> burst;
  const Port& port = ports_[from];
  const size_t received =
      port.uplink != nullptr ? port.uplink->receive(burst) : port.tap->receive(pool_, burst);
  for (size_t i = 0; i < received; ++i) {
    if (i + 1 < received) __builtin_prefetch(rte_pktmbuf_mtod(burst[i + 1], const void*));
    rte_mbuf* frame = glue::make_contiguous(burst[i], pool_);
    if (frame != nullptr) forward(frame, from);
  }
  return received;
}

// A program whose frames wait finds its ring full, and sends more slowly: its flood costs no buffers here.
void FrameSwitch::read_ring(PortIndex from) {
  Port& port = ports_[from];
  if (port.ring == nullptr || !port.backlog.empty()) return;
  // Seats whose frames wait must not hold all buffers.
  const size_t share = std::clamp<size_t>(frames_of(pool_) / 4 / ports_taken_, 1, kBurst);
  std::array<rte_mbuf*, kBurst> burst;
  const size_t received = port.ring->receive(pool_, from, std::span(burst).first(share));
  for (size_t i = 0; i < received; ++i)
    if (rte_mbuf* const frame = glue::make_contiguous(burst[i], pool_)) port.backlog.push_back(frame);
  if (!port.backlog.empty()) shares_.add(from);
  if (port.ring->violation() != nullptr) note_offender(from);
}

DeficitRoundRobin::Step FrameSwitch::forward_first(PortIndex from, uint32_t most_bytes) {
  using Outcome = DeficitRoundRobin::Outcome;
  Port& port = ports_[from];
  auto& backlog = port.backlog;
  // A port that left the order here would lose its share although its ring has more.
  if (backlog.empty()) read_ring(from);
  if (backlog.empty()) return {.outcome = Outcome::empty};
  rte_mbuf* const frame = backlog.front();
  const uint32_t bytes = link_bytes(frame);
  if (bytes > most_bytes) return {.outcome = Outcome::too_long};
  if (const auto marker = wire::parse_link_marker(glue::bytes_of(frame))) {
    forward_marker(frame, *marker, from);
  } else {
    const Verdict verdict = stations_.decide(glue::bytes_of(frame), from);
    if (uplink_ && verdict.to.test(*uplink_) && must_wait(port, bytes)) return {.outcome = Outcome::blocked};
    forward(frame, from, verdict);
  }
  backlog.pop_front();
  return {.outcome = Outcome::sent, .bytes = bytes};
}

bool FrameSwitch::must_wait(Port& port, uint32_t bytes) {
  const auto is_full = [&] { return ports_[*uplink_].waiting.size() >= kUplinkDepth; };
  if (is_full() && !takes_nothing_) takes_nothing_ = flush(*uplink_) == 0;
  if (is_full() || !uplink_rate_.has_tokens(now_)) return true;
  if (!port.rate.has_tokens(now_)) {
    if (std::exchange(port.is_rate_limited, true)) return true;
    ++counters_.rate_limited;
    ++port.counters.rate_limited;
    return true;
  }
  port.is_rate_limited = false;
  port.rate.take(bytes);
  return false;
}

// An uplink that takes nothing although its link is up would stop programs that send to it and to others.
void FrameSwitch::drop_stuck_frames() {
  if (!uplink_) return;
  Port& port = ports_[*uplink_];
  const bool is_stuck =
      !port.waiting.empty() && std::exchange(uplink_sent_before_, uplink_sent_) == uplink_sent_;
  if (!is_stuck) return;
  counters_.full += port.waiting.size();
  port.counters.undelivered += port.waiting.size();
  drop_waiting(*uplink_);
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
  forward(frame, from, stations_.decide(glue::bytes_of(frame), from));
}

void FrameSwitch::forward(rte_mbuf* frame, PortIndex from, const Verdict& verdict) {
  // No frame can reach a station without a link, so its address is not announced; the sender asks again.
  if (verdict.answer) return any_link_up(verdict.to) ? send_answer(frame, from) : rte_pktmbuf_free(frame);
  const size_t copies = verdict.to.count();
  if (copies == 0) {
    count_drop(from, verdict.drop);
    return rte_pktmbuf_free(frame);
  }
  note_connection(frame, from);
  counters_.forwarded += copies;
  ports_[from].counters.sent.add(rte_pktmbuf_pkt_len(frame));
  // Each port frees its frames, so it needs a reference.
  frame->ol_flags = 0;
  rte_mbuf_refcnt_update(frame, static_cast<int16_t>(copies - 1));
  if (copies == 1) note_pair(glue::bytes_of(frame), from, static_cast<PortIndex>(verdict.to._Find_first()));
  for_each_port(verdict.to, [&](PortIndex to) { put(frame, to); });
}

// Management datagrams and neighbours' messages always take the way over the switch, so they make no pair.
void FrameSwitch::note_pair(std::span<const uint8_t> frame, PortIndex from, PortIndex to) {
  if (from == to || from >= glue::kMostSeats || to >= glue::kMostSeats || pairs_.is_known(from, to)) return;
  if (wire::peek_unicast_receiver(frame)) pairs_.add(from, to);
}

// The marker follows the sender's earlier frames, which wait for the same port.
void FrameSwitch::forward_marker(rte_mbuf* frame, const wire::LinkMarker& marker, PortIndex from) {
  if (marker.from_seat == from && marker.to_seat < glue::kMostSeats && ports_[marker.to_seat].taken)
    return put(frame, marker.to_seat);
  count_drop(from, Drop::foreign_source);
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
  // The state of sockets takes several system calls.
  if (port.uplink != nullptr) return port.uplink->sends_by_socket() ? is_uplink_up_ : port.uplink->link_up();
  return port.tap != nullptr || (port.ring != nullptr && port.ring->takes_frames());
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
  port.counters.received.add(rte_pktmbuf_pkt_len(frame));
  if (port.uplink != nullptr) {
    uplink_rate_.take(link_bytes(frame));
    if ((frame = port.uplink->prepare(frame)) == nullptr) return room_.leave(to, 1);
  }
  port.waiting.push_back(frame);
  if (!std::exchange(port.is_queued, true)) queued_.push_back(to);
}

void FrameSwitch::note_drop(PortIndex to, WaitingRoom::Admission why) {
  ++(why == WaitingRoom::Admission::port_full ? counters_.full : counters_.crowded);
  ++ports_[to].counters.undelivered;
  Port& port = ports_[to];
  if (port.complained_at != 0 && now_ - port.complained_at < kComplaintNs) return;
  port.complained_at = now_;
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

size_t FrameSwitch::transmit(Port& port) {
  if (port.uplink != nullptr) return port.uplink->transmit(port.waiting);
  if (port.tap == nullptr) return is_up(port) ? port.ring->transmit(port.waiting) : 0;
  port.tap->transmit(port.waiting);
  return port.waiting.size();
}

// Frames for a port without a link are dropped, as a switch would.
size_t FrameSwitch::flush(PortIndex index) {
  Port& port = ports_[index];
  const bool up = is_up(port);
  const size_t sent = transmit(port);
  if (port.uplink != nullptr) uplink_sent_ += sent;
  room_.leave(index, sent);
  if (sent == port.waiting.size())
    port.waiting.clear();
  else if (sent == 0 && !up)
    drop_waiting(index);
  else
    port.waiting.erase(port.waiting.begin(), port.waiting.begin() + static_cast<ptrdiff_t>(sent));
  return sent;
}

void FrameSwitch::count_drop(PortIndex from, Drop reason) {
  ++counters_.drops[static_cast<size_t>(reason)];
  ++ports_[from].counters.dropped;
}

void FrameSwitch::describe(SwitchStatus& status) const {
  status.counters = counters_;
  status.exception = exception_name_;
  if (ports_[kExceptionPort].tap != nullptr) status.kernel = ports_[kExceptionPort].counters;
  for (SeatStatus& seat : status.seats) seat.counters = ports_[seat.port].counters;
  if (!uplink_) return;
  const Port& port = ports_[*uplink_];
  const glue::PortDrops drops = port.uplink->drops();
  status.uplink = UplinkStatus{.port = uplink_name_,
                               .is_up = port.uplink->link_up(),
                               .mac = port.uplink->mac(),
                               .mtu_bytes = port.uplink->mtu_bytes(),
                               .vlan = port.uplink->vlan_id(),
                               .waiting = port.waiting.size(),
                               .counters = port.counters,
                               .foreign_vlan = port.uplink->foreign_vlan(),
                               .missed = drops.missed,
                               .no_buffer = drops.no_buffer,
                               .refused = port.uplink->transmit_drops()};
}

// A UDP socket does not report that its interface or its address is down.
void FrameSwitch::look_at_uplink(TimeNs now) {
  if (uplink_descriptor() < 0 || now < next_uplink_look_) return;
  next_uplink_look_ = now + kUplinkLookNs;
  const bool is_up = ports_[kUplinkPort].uplink->link_up();
  if (is_up == std::exchange(is_uplink_up_, is_up)) return;
  stations_.note_uplink_state(is_up);
  uplink_change_ = is_up;
}

void FrameSwitch::look_after(TimeNs now) {
  look_at_uplink(now);
  if (now < next_look_) return;
  drop_stuck_frames();
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
