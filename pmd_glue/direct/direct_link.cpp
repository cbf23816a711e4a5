// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/direct/direct_link.hpp"

#include <utility>

#include <rte_mbuf.h>

#include "pmd_glue/wires/granted_addresses.hpp"
#include "stack/base/clock.hpp"
#include "stack/wire/link/neighbour_link.hpp"
#include "stack/wire/link/steering.hpp"

namespace faultline::glue {
namespace {

bool is_plain_ack(const rte_mbuf* frame) {
  return wire::is_plain_ack({rte_pktmbuf_mtod(frame, const uint8_t*), frame->data_len});
}

AddressTable table_of(const SwitchGrant& peer) {
  return {wire::MacAddress{peer.mac}, {}, addresses_of(peer), {}, peer.by_sockets == 0};
}

}  // namespace

std::unique_ptr<DirectLink> DirectLink::begin(WireAttachment::LinkNews news, uint32_t own_seat,
                                              KeptBudget& budget) {
  auto ring =
      SharedRing::begin(news.memory.get(), SharedRing::kLink, news.side, std::move(news.inbox), own_seat);
  if (ring == nullptr) return nullptr;
  return std::unique_ptr<DirectLink>(new DirectLink(news.peer, std::move(ring), budget));
}

DirectLink::DirectLink(const SwitchGrant& peer, std::unique_ptr<SharedRing> ring, KeptBudget& budget)
    : peer_(peer),
      peer_addresses_(table_of(peer)),
      peer_mac_(wire::mac_word(peer.mac.data())),
      ring_(std::move(ring)),
      kept_(budget) {}

size_t DirectLink::transmit(std::span<rte_mbuf*> frames, uint64_t& dropped) {
  if (!kept_.empty() && !flush(dropped)) [[unlikely]]
    return keep(frames, monotonic_ns(), dropped);
  const size_t sent = ring_->transmit(frames, is_plain_ack);
  if (sent != 0) {
    full_since_ = 0;
    return sent;
  }
  const TimeNs now = monotonic_ns();
  if (full_since_ == 0) full_since_ = now;
  return now - full_since_ <= kStuckNs ? 0 : keep(frames, now, dropped);
}

size_t DirectLink::keep(std::span<rte_mbuf*> frames, TimeNs now, uint64_t& dropped) {
  const TimeNs full_ns = full_since_ == 0 ? 0 : now - full_since_;
  if (const size_t kept = full_ns <= kKeptNs ? kept_.keep(frames) : 0; kept != 0 || full_ns <= kStuckNs)
    return kept;
  rte_pktmbuf_free_bulk(frames.data(), static_cast<unsigned>(frames.size()));
  dropped += frames.size();
  return frames.size();
}

bool DirectLink::flush(uint64_t& dropped) {
  while (!kept_.empty()) {
    const std::span<rte_mbuf* const> oldest = kept_.oldest();
    const size_t sent = takes_frames() ? ring_->transmit(oldest, is_plain_ack) : 0;
    kept_.take(sent);
    if (sent != 0) full_since_ = 0;
    if (sent == oldest.size()) continue;
    const TimeNs now = monotonic_ns();
    if (full_since_ == 0) full_since_ = now;
    if (takes_frames() && now - full_since_ <= kKeptNs) return false;
    dropped += kept_.drop_all();
  }
  return true;
}

size_t DirectLink::receive(rte_mempool* pool, uint16_t port, std::span<rte_mbuf*> frames) {
  if (!open_) [[unlikely]] {
    if (!ring_->has_frames()) return 0;
    const TimeNs now = monotonic_ns();
    if (waiting_since_ == 0) waiting_since_ = now;
    if (now - waiting_since_ < kMarkerNs) return 0;
    open_ = true;
  }
  if (violation_ != nullptr) [[unlikely]]
    return 0;
  const size_t received = ring_->receive(pool, port, frames);
  for (size_t i = 0; i < received; ++i) {
    if (is_of_peer(frames[i])) [[likely]]
      continue;
    violation_ = "sent a frame that is not its own";
    rte_pktmbuf_free_bulk(frames.data() + i, static_cast<unsigned>(received - i));
    return i;
  }
  return received;
}

// The switch checks what passes through it; here the receiver does. A connected QP identifies its peer by the
// source address. Management datagrams take the way over the switch, which routes them.
bool DirectLink::is_of_peer(const rte_mbuf* frame) const {
  const std::span<const uint8_t> bytes{rte_pktmbuf_mtod(frame, const uint8_t*), frame->data_len};
  if (wire::is_plain_roce_from(bytes, peer_mac_, peer_.ipv4)) [[likely]]
    return true;
  if (wire::classify(bytes) != wire::FrameKind::roce ||
      wire::peek_destination_qpn(bytes) == wire::kManagementQpn)
    return false;
  const auto ethernet = wire::peek_ethernet(bytes);
  const auto source = wire::peek_source_gid(bytes);
  return ethernet && source && ethernet->source == peer_addresses_.mac() && peer_addresses_.is_own(*source);
}

TimeNs DirectLink::idle_since(TimeNs now) {
  if (ring_->moved() != moved_seen_ || idle_since_ == 0) idle_since_ = now;
  moved_seen_ = ring_->moved();
  return idle_since_;
}

bool DirectLink::close() {
  ring_->set_closing();
  return ring_->other_state() == SharedRing::State::closing && !ring_->has_frames();
}

}  // namespace faultline::glue
