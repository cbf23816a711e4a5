// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/neighbours.hpp"

#include <algorithm>

namespace faultline::glue {
namespace {

using transport::kNever;
using transport::TimeNs;

// Pause after each request. Short at first, since the peer's device may be coming up at this moment; 5 s in
// all.
constexpr std::array<TimeNs, 8> kRequestPauseNs{20'000'000,  50'000'000,    100'000'000,   330'000'000,
                                                500'000'000, 1'000'000'000, 1'000'000'000, 2'000'000'000};

}  // namespace

NeighbourCache::NeighbourCache(const wire::MacAddress& own_mac, uint32_t own_ip)
    : own_mac_(own_mac), own_ip_(own_ip) {}

const NeighbourCache::Entry* NeighbourCache::find(uint32_t ip) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [ip](const Entry& entry) {
    return entry.ip == ip && entry.state != NeighbourState::absent;
  });
  return found == entries_.end() ? nullptr : &*found;
}

NeighbourCache::Entry* NeighbourCache::find(uint32_t ip) {
  return const_cast<Entry*>(static_cast<const NeighbourCache*>(this)->find(ip));
}

// A free entry, or the oldest one: first of those that nobody waits for.
NeighbourCache::Entry& NeighbourCache::claim(uint32_t ip) {
  const auto rank = [](const Entry& entry) {
    const int kind = entry.state == NeighbourState::absent       ? 0
                     : entry.state == NeighbourState::incomplete ? 2
                                                                 : 1;
    return std::pair(kind, entry.updated);
  };
  Entry& entry = *std::min_element(entries_.begin(), entries_.end(),
                                   [&](const Entry& a, const Entry& b) { return rank(a) < rank(b); });
  entry = Entry{};
  entry.ip = ip;
  return entry;
}

void NeighbourCache::learn(Entry& entry, const wire::MacAddress& mac, TimeNs now) {
  entry.state = NeighbourState::reachable;
  entry.mac = mac;
  entry.updated = now;
  refresh_deadline();
}

void NeighbourCache::refresh_deadline() {
  next_deadline_ = kNever;
  for (const Entry& entry : entries_)
    if (entry.state == NeighbourState::incomplete) next_deadline_ = std::min(next_deadline_, entry.deadline);
}

size_t NeighbourCache::on_arp(std::span<const uint8_t> frame, TimeNs now, std::span<uint8_t> reply) {
  wire::ArpPacket packet;
  if (!wire::parse_arp(frame, packet)) return 0;
  // A sender that claims our address is a conflict (RFC 5227): it is neither learnt nor answered. 0 is a
  // probe.
  if (packet.sender_ip == own_ip_) return 0;
  const bool for_us = packet.target_ip == own_ip_;

  // RFC 826: update what is known; add only who asks for us. A reply that nobody waits for adds nothing.
  if (packet.sender_ip != 0) {
    if (Entry* entry = find(packet.sender_ip); entry != nullptr)
      learn(*entry, packet.sender_mac, now);
    else if (for_us && packet.operation == wire::ArpOperation::request)
      learn(claim(packet.sender_ip), packet.sender_mac, now);
  }
  if (!for_us || packet.operation != wire::ArpOperation::request) return 0;
  const wire::ArpPacket answer{wire::ArpOperation::reply, own_mac_, own_ip_, packet.sender_mac,
                               packet.sender_ip};
  return wire::build_arp(reply, answer, packet.sender_mac);
}

NeighbourState NeighbourCache::lookup(uint32_t ip, TimeNs now, wire::MacAddress& mac) const {
  const Entry* entry = find(ip);
  if (entry == nullptr) return NeighbourState::absent;
  if (entry->state == NeighbourState::reachable) {
    if (now - entry->updated > kReachableNs) return NeighbourState::absent;
    mac = entry->mac;
  }
  return entry->state;
}

void NeighbourCache::resolve(uint32_t ip, TimeNs now) {
  wire::MacAddress mac;
  const NeighbourState state = lookup(ip, now, mac);
  if (state == NeighbourState::incomplete || state == NeighbourState::reachable) return;
  Entry* entry = find(ip);
  if (entry == nullptr) entry = &claim(ip);
  entry->state = NeighbourState::incomplete;
  entry->requests_sent = 0;
  entry->updated = now;
  entry->deadline = now;
  next_deadline_ = std::min(next_deadline_, now);
}

size_t NeighbourCache::poll(TimeNs now, std::span<uint8_t> request) {
  if (now < next_deadline_) return 0;
  size_t length_bytes = 0;
  for (Entry& entry : entries_) {
    if (entry.state != NeighbourState::incomplete || now < entry.deadline) continue;
    if (entry.requests_sent == kRequestPauseNs.size()) {
      entry.state = NeighbourState::failed;
      continue;
    }
    entry.deadline = now + kRequestPauseNs[entry.requests_sent++];
    const wire::ArpPacket question{wire::ArpOperation::request, own_mac_, own_ip_, wire::MacAddress{},
                                   entry.ip};
    length_bytes = wire::build_arp(request, question, wire::kBroadcastMac);
    break;
  }
  refresh_deadline();
  return length_bytes;
}

}  // namespace faultline::glue
