// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/direct/wire_port.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include <rte_mbuf.h>
#include <spdlog/fmt/fmt.h>

#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/eal/mbuf_view.hpp"
#include "pmd_glue/ports/ethdev_port.hpp"
#include "stack/base/log.hpp"
#include "stack/wire/link/address_text.hpp"
#include "stack/wire/link/neighbour_link.hpp"

namespace faultline::glue {
namespace {

// Stopped peers keep at most an eighth of the frames.
constexpr uint32_t kPoolShare = 8;

}  // namespace

std::unique_ptr<WirePort> WirePort::open(const Config& config, const DeviceConfig& device,
                                         WireAttachment& attachment, std::string& error) {
  rte_mempool* const pool = frame_pool(config);
  if (pool == nullptr) {
    error = fmt::format("faultline: {}: eal.memory_mib: not enough memory for the frames of {}", config.path,
                        device.name);
    return nullptr;
  }
  std::string why;
  const uint32_t cores = core_count_of(device);
  // Only these name a port by its number.
  const bool needs_identity = !device.capture.empty() || cores > 1;
  auto identity = needs_identity ? PortIdentity::create(own_name("fl_wire_" + device.name), why) : nullptr;
  if (needs_identity && identity == nullptr) {
    error = fmt::format("faultline: {}: {}: cannot create the port: {}", config.path, device.name, why);
    return nullptr;
  }
  std::unique_ptr<WirePort> port(new WirePort(attachment, std::move(identity), pool, cores));
  std::optional<WireAttachment::Seat> seat = attachment.await_seat(error);
  if (!seat) return nullptr;
  port->use_seat(std::move(*seat));
  if (port->to_switch_ != nullptr) return port;
  error = fmt::format("faultline: {}: {}: the ring to the wire's switch cannot be mapped", config.path,
                      device.name);
  return nullptr;
}

WirePort::WirePort(WireAttachment& attachment, std::unique_ptr<PortIdentity> identity, rte_mempool* pool,
                   uint32_t cores)
    : attachment_(attachment), identity_(std::move(identity)) {
  if (identity_ != nullptr) id_ = identity_->id();
  pool_ = pool;
  budget_.most_frames = pool->size / kPoolShare;
  cores_ = cores;
  started_ = true;
}

// The peers send nothing more over the links once they see this.
WirePort::~WirePort() {
  for (const auto& entry : links_)
    if (!entry->link->is_ended()) attachment_.end_link(entry->link->peer().port, false);
}

// ---- the ring to the switch ----

bool WirePort::is_ring_up() const {
  return attachment_.is_granted() &&
         seat_count_.load(std::memory_order_relaxed) == attachment_.seat_count() &&
         !switch_broke_ring_.load(std::memory_order_relaxed);
}

// The kernel routes packets that sockets send. A program of the wire has the MAC address mac_of() too.
std::optional<wire::MacAddress> WirePort::mac_of_peer(const wire::Gid& peer) const {
  if (!sends_by_socket()) return std::nullopt;
  return mac_of(peer);
}

uint32_t WirePort::most_window_packets() const {
  return sends_by_socket() ? attachment_.grant().window_packets : UINT32_MAX;
}

void WirePort::reconnect() {
  std::optional<WireAttachment::Seat> seat = attachment_.take_seat();
  if (seat)
    use_seat(std::move(*seat));
  else if (switch_broke_ring_.load(std::memory_order_relaxed))
    attachment_.leave_seat();
}

void WirePort::use_seat(WireAttachment::Seat seat) {
  const std::lock_guard lock(table_);
  if (seat.lost_descriptors && to_switch_ != nullptr) to_switch_->lose_descriptors();
  const uint32_t count = attachment_.seat_count();
  auto ring = SharedRing::begin(seat.memory.get(), SharedRing::kSeat, kSideOfProcess,
                                std::move(seat.switch_inbox), attachment_.grant().port);
  if (ring == nullptr) return log().warn("the ring to the switch cannot be mapped");
  to_switch_ = std::move(ring);
  // The ring is looked at in each turn, so it needs no doorbells while turns run.
  if (!is_armed_) to_switch_->disarm();
  inbox_ = std::move(seat.own_inbox);
  if (rings_)
    rings_->use_inbox(*inbox_);
  else
    rings_.emplace(*inbox_);
  switch_broke_ring_.store(false, std::memory_order_relaxed);
  seat_count_.store(count, std::memory_order_relaxed);
}

// ---- transmit ----

size_t WirePort::transmit(uint32_t /*core*/, std::span<rte_mbuf*> burst) {
  std::unique_lock lock(table_, std::defer_lock);
  if (cores_ > 1) lock.lock();
  if (links_.empty()) return put_on_switch(burst);
  size_t done = 0;
  while (done < burst.size()) {
    DirectLink* const link = route(burst[done]);
    size_t end = done + 1;
    while (end < burst.size() && route(burst[end]) == link) ++end;
    const std::span<rte_mbuf*> frames = burst.subspan(done, end - done);
    uint64_t dropped = 0;
    const size_t sent = link != nullptr ? link->transmit(frames, dropped) : put_on_switch(frames);
    count_drops(dropped);
    done += sent;
    if (sent != frames.size()) break;
  }
  return done;
}

void WirePort::count_drops(uint64_t dropped) {
  if (dropped != 0)
    dropped_.store(dropped_.load(std::memory_order_relaxed) + dropped, std::memory_order_relaxed);
}

void WirePort::flush_kept_frames() {
  std::unique_lock lock(table_, std::defer_lock);
  if (cores_ > 1) lock.lock();
  uint64_t dropped = 0;
  for (const auto& entry : links_)
    if (entry->link->keeps_frames()) static_cast<void>(entry->link->flush(dropped));
  count_drops(dropped);
}

size_t WirePort::put_on_switch(std::span<rte_mbuf*> frames) {
  return to_switch_->takes_frames() ? to_switch_->transmit(frames) : 0;
}

/// Returns the link that a frame takes; nullptr: the way over the switch.
DirectLink* WirePort::route(const rte_mbuf* frame) {
  const std::span<const uint8_t> bytes{rte_pktmbuf_mtod(frame, const uint8_t*), frame->data_len};
  const auto receiver = wire::peek_unicast_receiver(bytes);
  if (!receiver) return nullptr;
  const auto leads_there = [&](const Entry& entry) {
    return entry.mac == receiver->mac && receiver->qpn >= entry.first_qpn && receiver->qpn <= entry.last_qpn;
  };
  if (last_route_ == nullptr || !leads_there(*last_route_)) {
    const auto found = by_mac_.find(receiver->mac);
    if (found == by_mac_.end()) return nullptr;
    const auto entry = std::find_if(found->second.begin(), found->second.end(),
                                    [&](const Entry* one) { return leads_there(*one); });
    if (entry == found->second.end()) return nullptr;
    last_route_ = *entry;
  }
  DirectLink& link = *last_route_->link;
  if (!link.takes_frames()) return nullptr;
  return link.is_marked() || send_marker(link) ? &link : nullptr;
}

bool WirePort::send_marker(DirectLink& link) {
  rte_mbuf* frame = rte_pktmbuf_alloc(pool_);
  if (frame == nullptr) return false;
  set_length(frame, wire::kLinkMarkerBytes);
  wire::write_link_marker(bytes_of(frame), wire::MacAddress{attachment_.grant().mac},
                          wire::MacAddress{link.peer().mac},
                          {.from_seat = static_cast<uint16_t>(attachment_.grant().port),
                           .to_seat = static_cast<uint16_t>(link.peer().port)});
  if (put_on_switch({&frame, 1}) == 0) {
    rte_pktmbuf_free(frame);
    // Without a switch, no frame of this process is still on its way over one.
    if (is_ring_up()) return false;
  }
  link.note_marker_sent();
  return true;
}

// ---- receive ----

size_t WirePort::receive(uint16_t /*queue*/, std::span<rte_mbuf*> burst) {
  if (budget_.kept() != 0) [[unlikely]]
    flush_kept_frames();
  // Before the switch's frames: what a peer sent before its DREQ or its end is delivered before these.
  size_t received = links_.empty() ? 0 : receive_from_links(burst);
  bool has_opened = false;
  if (received < burst.size()) received += receive_from_switch(burst.subspan(received), has_opened);
  if (has_opened && received < burst.size()) received += receive_from_links(burst.subspan(received));
  return received;
}

size_t WirePort::receive_from_links(std::span<rte_mbuf*> burst) {
  size_t received = 0;
  holds_back_ = false;
  rings_->receive([&](uint16_t seat) {
    DirectLink& link = *of_ring_[seat]->link;
    received += link.receive(pool_, id_, burst.subspan(received));
    holds_back_ |= link.waits_for_marker();
    if (link.violation() != nullptr) [[unlikely]]
      has_offender_.store(true, std::memory_order_relaxed);
    return received < burst.size();
  });
  return received;
}

size_t WirePort::receive_from_switch(std::span<rte_mbuf*> burst, bool& has_opened) {
  const size_t received = to_switch_->receive(pool_, id_, burst);
  size_t kept = 0;
  for (size_t i = 0; i < received; ++i) {
    rte_mbuf* const frame = burst[i];
    const auto marker =
        frame->data_len == wire::kLinkMarkerBytes ? wire::parse_link_marker(bytes_of(frame)) : std::nullopt;
    if (!marker) {
      burst[kept++] = frame;
      continue;
    }
    // The switch has checked the sender's seat.
    if (marker->from_seat < of_ring_.size() && of_ring_[marker->from_seat] != nullptr) {
      of_ring_[marker->from_seat]->link->open();
      has_opened = true;
    }
    rte_pktmbuf_free(frame);
  }
  if (to_switch_->violation() != nullptr && !switch_broke_ring_.exchange(true, std::memory_order_relaxed))
      [[unlikely]] {
    violations_.fetch_add(1, std::memory_order_relaxed);
    has_offender_.store(true, std::memory_order_relaxed);
    log().error("the ring to the switch is closed: the switch {}", to_switch_->violation());
  }
  return kept;
}

void WirePort::arm(WakeFor what) {
  is_armed_ = true;
  to_switch_->arm();
  rings_->arm(what);
}

void WirePort::disarm() {
  is_armed_ = false;
  to_switch_->disarm();
  rings_->disarm();
}

// ---- the links ----

void WirePort::take(WireAttachment::LinkNews news) {
  using What = WireAttachment::LinkNews::What;
  const std::lock_guard lock(table_);
  const uint32_t seat = news.peer.port;
  if (Entry* const entry = of_ring_[seat]) {
    if (news.what == What::lost) entry->link->ring().lose_descriptors();
    entry->link->end();
    leave_routes(*entry);
    rings_->activate(seat);
    // Another process has the seat of the one that ended.
    if (news.what == What::begins) drop(*entry);
  }
  if (news.what != What::begins) return;
  auto link = DirectLink::begin(std::move(news), attachment_.grant().port, budget_);
  if (link == nullptr) return log().warn("no memory for a direct link to seat {}", seat);
  add(std::move(link));
}

void WirePort::add(std::unique_ptr<DirectLink> link) {
  auto entry = std::make_unique<Entry>();
  const SwitchGrant& peer = link->peer();
  entry->mac = wire::mac_word(peer.mac.data());
  if (peer.shared != 0) {
    entry->first_qpn = peer.first_qpn();
    entry->last_qpn = peer.last_qpn();
  }
  entry->link = std::move(link);
  of_ring_[peer.port] = entry.get();
  by_mac_[entry->mac].push_back(entry.get());
  rings_->add(peer.port, entry->link->ring());
  links_.push_back(std::move(entry));
}

void WirePort::leave_routes(Entry& entry) {
  if (last_route_ == &entry) last_route_ = nullptr;
  const auto found = by_mac_.find(entry.mac);
  if (found == by_mac_.end()) return;
  std::erase(found->second, &entry);
  if (found->second.empty()) by_mac_.erase(found);
}

std::vector<WirePort::Ended> WirePort::look_after(TimeNs now) {
  const std::lock_guard lock(table_);
  has_offender_.store(false, std::memory_order_relaxed);
  std::vector<Ended> ended;
  for (size_t i = 0; i < links_.size();) {
    DirectLink& link = *links_[i]->link;
    const uint32_t seat = link.peer().port;
    const bool is_barred = link.violation() != nullptr;
    if (is_barred) note_violation(link.peer(), link.violation());
    const TimeNs idle_ns = now - link.idle_since(now);
    const bool is_closing = link.ring().own_state() == SharedRing::State::closing;
    const bool wants_close =
        idle_ns >= kIdleNs || link.ring().other_state() == SharedRing::State::closing || is_closing;
    const bool is_closed = !link.is_ended() && wants_close && link.close();
    // A peer that has died without word of the switch never agrees.
    const bool is_abandoned = is_closing && idle_ns >= 2 * kIdleNs;
    if (is_barred || is_closed || is_abandoned || link.is_drained()) {
      if (!link.is_ended()) ended.push_back({seat, is_barred});
      drop(*links_[i]);
      continue;
    }
    // A ring that was lost: other processes may write to the inbox.
    if (!rings_->is_active(seat) && link.ring().has_frames()) rings_->activate(seat);
    ++i;
  }
  return ended;
}

void WirePort::drop(Entry& entry) {
  leave_routes(entry);
  const uint32_t seat = entry.link->peer().port;
  rings_->remove(seat);
  of_ring_[seat] = nullptr;
  std::erase_if(links_, [&](const auto& one) { return one.get() == &entry; });
}

void WirePort::note_violation(const SwitchGrant& peer, const char* what) {
  violations_.fetch_add(1, std::memory_order_relaxed);
  log().error("the direct link to {} is closed: its process {}", wire::text_of_ipv4(peer.ipv4), what);
}

}  // namespace faultline::glue
