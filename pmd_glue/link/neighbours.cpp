// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/link/neighbours.hpp"

#include <algorithm>

namespace faultline::glue {
namespace {

// The pauses after the first requests are short, since the peer's device may just be starting. A later
// request follows each second, as in Linux (arp(7), retrans_time_ms).
constexpr std::array<TimeNs, 5> kFirstPausesNs{20'000'000, 50'000'000, 100'000'000, 330'000'000, 500'000'000};
constexpr TimeNs kPauseNs = 1'000'000'000;
// 10 s in all. Linux gives ibv_modify_qp() a second, but there the kernel answers, and here a process that
// may have no CPU.
constexpr uint8_t kRequests = 14;

constexpr TimeNs pause_after(uint8_t requests) {
  return requests <= kFirstPausesNs.size() ? kFirstPausesNs[requests - 1U] : kPauseNs;
}

// Unicast requests to a doubted neighbour; 170 ms in all.
constexpr uint8_t kQuestionsInDoubt = 3;

}  // namespace

const NeighbourCache::Entry* NeighbourCache::find(const wire::Gid& gid) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&gid](const Entry& entry) {
    return entry.state != NeighbourState::absent && entry.gid == gid;
  });
  return found == entries_.end() ? nullptr : &*found;
}

NeighbourCache::Entry* NeighbourCache::find(const wire::Gid& gid) {
  return const_cast<Entry*>(static_cast<const NeighbourCache*>(this)->find(gid));
}

// Returns a free entry, or evicts the oldest one: first of those added by a peer's request, last of those
// with requests under way.
NeighbourCache::Entry* NeighbourCache::claim(const wire::Gid& gid, bool wanted) {
  const auto kind = [](const Entry& entry) {
    if (entry.state == NeighbourState::absent) return 0;
    if (entry.state == NeighbourState::incomplete || entry.doubted) return 3;
    return entry.wanted ? 2 : 1;
  };
  const auto rank = [&](const Entry& entry) { return std::pair(kind(entry), entry.updated); };
  Entry& entry =
      *std::min_element(entries_.begin(), entries_.end(),
                        [&](const Entry& one, const Entry& other) { return rank(one) < rank(other); });
  if (!wanted && kind(entry) > 1) return nullptr;
  entry = Entry{};
  entry.gid = gid;
  entry.wanted = wanted;
  return &entry;
}

void NeighbourCache::learn(Entry& entry, const wire::MacAddress& mac, TimeNs now) {
  entry.state = NeighbourState::reachable;
  entry.doubted = false;
  entry.mac = mac;
  entry.updated = now;
  refresh_deadline();
}

void NeighbourCache::hear(const wire::Gid& gid, const wire::MacAddress& mac, bool asker, TimeNs now) {
  Entry* entry = find(gid);
  if (entry == nullptr && asker) entry = claim(gid, false);
  if (entry == nullptr) return;
  const bool known = entry->state == NeighbourState::reachable && now - entry->updated <= kReachableNs;
  if (!known && !asker && entry->state != NeighbourState::incomplete) return;  // no request awaits it
  if (!known || entry->mac == mac) return learn(*entry, mac, now);
  if (entry->doubted || now - entry->updated < kBeyondDoubtNs) return;
  entry->doubted = true;
  entry->requests_sent = 0;
  entry->deadline = now;
  next_deadline_ = std::min(next_deadline_, now);
}

void NeighbourCache::refresh_deadline() {
  next_deadline_ = kNever;
  for (const Entry& entry : entries_)
    if (entry.state == NeighbourState::incomplete || entry.doubted)
      next_deadline_ = std::min(next_deadline_, entry.deadline);
}

size_t NeighbourCache::on_arp(std::span<const uint8_t> frame, TimeNs now, std::span<uint8_t> reply) {
  wire::ArpPacket packet;
  if (!wire::parse_arp(frame, packet)) return 0;
  const wire::Gid sender = wire::Gid::from_ipv4(packet.sender_ip);
  const wire::Gid target = wire::Gid::from_ipv4(packet.target_ip);
  // A sender with our address is a conflict (RFC 5227): it is neither learnt nor answered. Sender 0 is a
  // probe.
  if (own_.is_own(sender)) return 0;
  const bool for_us = own_.is_own(target);

  // RFC 826: update known entries; add only a sender that requests our address. An unsolicited reply adds
  // nothing.
  if (packet.sender_ip != 0)
    hear(sender, packet.sender_mac, for_us && packet.operation == wire::ArpOperation::request, now);
  if (!for_us || packet.operation != wire::ArpOperation::request) return 0;
  const wire::ArpPacket answer{wire::ArpOperation::reply, own_.mac(), packet.target_ip, packet.sender_mac,
                               packet.sender_ip};
  return wire::build_arp(reply, answer, packet.sender_mac, own_.vlan());
}

size_t NeighbourCache::on_neighbour_message(const wire::NeighbourMessage& message, TimeNs now,
                                            std::span<uint8_t> reply) {
  if (message.kind == wire::NeighbourMessageKind::solicitation)
    return answer_solicitation(message, now, reply);
  take_advertisement(message, now);
  return 0;
}

size_t NeighbourCache::answer_solicitation(const wire::NeighbourMessage& message, TimeNs now,
                                           std::span<uint8_t> reply) {
  if (!own_.is_own(message.target) || own_.is_own(message.source)) return 0;
  const bool to_us = message.destination == message.target ||
                     message.destination == wire::solicited_node_group(message.target);
  if (!to_us) return 0;

  wire::NeighbourMessage answer;
  answer.kind = wire::NeighbourMessageKind::advertisement;
  answer.source = answer.target = message.target;
  answer.has_link_address = true;
  answer.link_address = own_.mac();
  answer.override_known = true;
  if (message.source.is_zero()) {
    // A node probes for our address (RFC 4862, 5.4.3): advertise it to all nodes.
    answer.destination = wire::Gid{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
    return wire::build_neighbour_message(reply, answer,
                                         {own_.mac(), wire::multicast_mac(answer.destination), own_.vlan()});
  }
  // A unicast solicitation may omit its option (RFC 4861, 4.3): reply to the frame's sender.
  wire::MacAddress to = message.sender_mac;
  if (message.has_link_address) {
    to = message.link_address;
    hear(message.source, to, true, now);
  }
  answer.destination = message.source;
  answer.solicited = true;
  return wire::build_neighbour_message(reply, answer, {own_.mac(), to, own_.vlan()});
}

// RFC 4861, 7.2.5: an unsolicited advertisement makes no entry.
void NeighbourCache::take_advertisement(const wire::NeighbourMessage& message, TimeNs now) {
  if (own_.is_own(message.target)) return;
  const Entry* entry = find(message.target);
  if (entry == nullptr || !message.has_link_address) return;
  // A different address for a known neighbour is considered only if the override flag is set.
  if (entry->state == NeighbourState::reachable && entry->mac != message.link_address &&
      !message.override_known)
    return;
  hear(message.target, message.link_address, false, now);
}

NeighbourState NeighbourCache::lookup(const wire::Gid& neighbour, TimeNs now, wire::MacAddress& mac) const {
  const Entry* entry = find(neighbour);
  if (entry == nullptr) return NeighbourState::absent;
  if (entry->state == NeighbourState::reachable) {
    if (now - entry->updated > kReachableNs && !entry->doubted) return NeighbourState::absent;
    if (entry->doubted) return NeighbourState::incomplete;
    mac = entry->mac;
  }
  return entry->state;
}

void NeighbourCache::resolve(const wire::Gid& neighbour, TimeNs now) {
  wire::MacAddress mac;
  const NeighbourState state = lookup(neighbour, now, mac);
  Entry* entry = find(neighbour);
  if (entry != nullptr) entry->wanted = true;
  if (state == NeighbourState::incomplete || state == NeighbourState::reachable) return;
  if (entry == nullptr) entry = claim(neighbour, true);
  entry->state = NeighbourState::incomplete;
  entry->requests_sent = 0;
  entry->updated = now;
  entry->deadline = now;
  next_deadline_ = std::min(next_deadline_, now);
}

NeighbourState NeighbourCache::wait_for(const wire::Gid& neighbour, TimeNs now, bool& is_asked,
                                        wire::MacAddress& mac) {
  if (!is_asked || lookup(neighbour, now, mac) == NeighbourState::absent) resolve(neighbour, now);
  is_asked = true;
  return lookup(neighbour, now, mac);
}

/// Writes a request: multicast or broadcast, or unicast to the known address of a doubted neighbour.
size_t NeighbourCache::write_question(const Entry& entry, std::span<uint8_t> request) const {
  const wire::Gid& neighbour = entry.gid;
  const std::optional<wire::Gid> source = own_.source_for(neighbour);
  if (!source) return 0;
  if (neighbour.is_ipv4()) {
    const wire::ArpPacket question{wire::ArpOperation::request, own_.mac(), source->ipv4(),
                                   wire::MacAddress{}, neighbour.ipv4()};
    return wire::build_arp(request, question, entry.doubted ? entry.mac : wire::kBroadcastMac, own_.vlan());
  }
  wire::NeighbourMessage question;
  question.source = *source;
  question.destination = entry.doubted ? neighbour : wire::solicited_node_group(neighbour);
  question.target = neighbour;
  question.has_link_address = true;
  question.link_address = own_.mac();
  const wire::MacAddress to = entry.doubted ? entry.mac : wire::multicast_mac(question.destination);
  return wire::build_neighbour_message(request, question, {own_.mac(), to, own_.vlan()});
}

size_t NeighbourCache::poll(TimeNs now, std::span<uint8_t> request, bool& ipv6) {
  if (now < next_deadline_) return 0;
  size_t length_bytes = 0;
  for (Entry& entry : entries_) {
    if ((entry.state != NeighbourState::incomplete && !entry.doubted) || now < entry.deadline) continue;
    if (entry.doubted && entry.requests_sent == kQuestionsInDoubt) {
      // The known address is silent: accept any sender's reply.
      entry.doubted = false;
      entry.state = NeighbourState::incomplete;
      entry.requests_sent = 0;
    }
    if (entry.requests_sent == kRequests) {
      entry.state = NeighbourState::failed;
      continue;
    }
    entry.deadline = now + pause_after(++entry.requests_sent);
    ipv6 = !entry.gid.is_ipv4();
    length_bytes = write_question(entry, request);
    break;
  }
  refresh_deadline();
  return length_bytes;
}

}  // namespace faultline::glue
