// SPDX-License-Identifier: BSD-3-Clause
// What is not RoCEv2: frames that are too short or too long, somebody else's, and false words about
// addresses.
#include <algorithm>

#include "stack/wire/link/link.hpp"
#include "stack/wire/packet/checksum.hpp"
#include "stack/wire/packet/layout.hpp"
#include "tests/interop/hostile/attacks.hpp"

namespace faultline::hostile {
namespace {

constexpr uint8_t kProtocolIcmp = 1;
constexpr uint8_t kProtocolTcp = 6;
constexpr uint8_t kProtocolIcmpv6 = 58;

void put_ethernet(Bytes& frame, const wire::MacAddress& to, const wire::MacAddress& from, uint16_t type) {
  std::copy(to.bytes.begin(), to.bytes.end(), frame.begin());
  std::copy(from.bytes.begin(), from.bytes.end(), frame.begin() + 6);
  wire::store_be16(&frame[12], type);
}

uint16_t checksum(std::span<const uint8_t> bytes) {
  return static_cast<uint16_t>(~wire::fold_sum(wire::ones_sum(bytes)));
}

/// An IPv4 packet of a protocol with that payload.
Bytes ipv4_frame(const wire::PathHeader& path, uint8_t protocol, const Bytes& payload) {
  Bytes frame(wire::kEthernetBytes + wire::kIpv4Bytes);
  put_ethernet(frame, path.destination_mac, path.source_mac, wire::kEtherTypeIpv4);
  uint8_t* ip = &frame[wire::kEthernetBytes];
  ip[0] = wire::kIpv4VersionAndLength;
  wire::store_be16(ip + wire::kIpv4TotalLengthAt, static_cast<uint16_t>(wire::kIpv4Bytes + payload.size()));
  ip[wire::kIpv4TtlAt] = 64;
  ip[wire::kIpv4ProtocolAt] = protocol;
  wire::store_be32(ip + wire::kIpv4SourceAt, path.source_gid.ipv4());
  wire::store_be32(ip + wire::kIpv4DestinationAt, path.destination_gid.ipv4());
  wire::store_be16(ip + wire::kIpv4ChecksumAt, checksum({ip, wire::kIpv4Bytes}));
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

Bytes ipv6_frame(const wire::PathHeader& path, uint8_t next_header, const Bytes& payload) {
  Bytes frame(wire::kEthernetBytes + wire::kIpv6Bytes);
  put_ethernet(frame, path.destination_mac, path.source_mac, wire::kEtherTypeIpv6);
  uint8_t* ip = &frame[wire::kEthernetBytes];
  ip[0] = 0x60;
  wire::store_be16(ip + wire::kIpv6PayloadLengthAt, static_cast<uint16_t>(payload.size()));
  ip[wire::kIpv6NextHeaderAt] = next_header;
  ip[wire::kIpv6HopLimitAt] = 64;
  std::copy(path.source_gid.bytes.begin(), path.source_gid.bytes.end(), ip + wire::kIpv6SourceAt);
  std::copy(path.destination_gid.bytes.begin(), path.destination_gid.bytes.end(),
            ip + wire::kIpv6DestinationAt);
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

Bytes of_path(const wire::PathHeader& path, uint8_t protocol, const Bytes& payload) {
  return path.destination_gid.is_ipv4() ? ipv4_frame(path, protocol, payload)
                                        : ipv6_frame(path, protocol, payload);
}

}  // namespace

Bytes Attacks::runt() {
  constexpr std::array kTypes{wire::kEtherTypeIpv4, wire::kEtherTypeIpv6, wire::kEtherTypeArp};
  Bytes frame = random_bytes(wire::kEthernetBytes + random(wire::kMinFrameBytes - wire::kEthernetBytes));
  put_ethernet(frame, facts_.target.mac, facts_.own.mac, kTypes[random(kTypes.size())]);
  // Half of them look as if only their end were missing.
  if (frame.size() > wire::kEthernetBytes && chance(50)) {
    const Bytes whole = packet(foreign_path(), fields_for(any_qp(), wire::Opcode::rc_write_only));
    std::copy_n(whole.begin(), std::min(frame.size(), whole.size()), frame.begin());
  }
  return frame;
}

/// As long as the target's link takes it, which is longer than a packet of the largest path MTU is.
Bytes Attacks::oversize() {
  const wire::PathHeader path = foreign_path();
  wire::PacketFields fields = fields_for(any_qp(), wire::Opcode::rc_send_only);
  Bytes frame = packet(path, fields);
  const size_t bytes = 4250 + random(264);
  while (frame.size() < bytes) frame.push_back(static_cast<uint8_t>(random_()));
  if (chance(50)) repair(frame);
  return frame;
}

Bytes Attacks::noise() {
  Bytes frame = random_bytes(60 + random(1440));
  put_ethernet(frame, facts_.target.mac, facts_.own.mac, static_cast<uint16_t>(random_()));
  return frame;
}

Bytes Attacks::not_for_us() {
  wire::PathHeader path = foreign_path();
  if (chance(50))
    path.destination_gid = stranger(!path.destination_gid.is_ipv4());
  else
    path.destination_mac = chance(50) ? wire::kBroadcastMac : wire::MacAddress{{0x02, 1, 2, 3, 4, 5}};
  return packet(path, fields_for(any_qp(), wire::Opcode::rc_write_only));
}

Bytes Attacks::tagged() {
  wire::PathHeader path = foreign_path();
  path.has_vlan = true;
  path.vlan_tci = static_cast<uint16_t>(1 + random(4094));
  return packet(path, fields_for(any_qp(), wire::Opcode::rc_write_only));
}

Bytes Attacks::arp_request() {
  const wire::ArpPacket question{wire::ArpOperation::request, facts_.own.mac, stranger(false).ipv4(),
                                 wire::MacAddress{}, facts_.target.ipv4.ipv4()};
  Bytes frame(wire::kMinFrameBytes);
  frame.resize(wire::build_arp(frame, question, chance(50) ? wire::kBroadcastMac : facts_.target.mac));
  return frame;
}

/// That the peer's address, or the target's own, is at the sender's.
Bytes Attacks::arp_claim() {
  const uint32_t claimed = (chance(80) ? facts_.peer : facts_.target).ipv4.ipv4();
  const bool reply = chance(60);
  const wire::ArpPacket claim{reply ? wire::ArpOperation::reply : wire::ArpOperation::request, facts_.own.mac,
                              claimed, facts_.target.mac, chance(50) ? claimed : facts_.target.ipv4.ipv4()};
  Bytes frame(wire::kMinFrameBytes);
  frame.resize(wire::build_arp(frame, claim, facts_.target.mac));
  return frame;
}

Bytes Attacks::neighbour_solicitation() {
  wire::NeighbourMessage message;
  message.source = chance(10) ? wire::Gid{} : stranger(true);
  message.target = facts_.target.ipv6;
  message.destination = chance(50) ? message.target : wire::solicited_node_group(message.target);
  message.has_link_address = !message.source.is_zero();
  message.link_address = facts_.own.mac;
  Bytes frame(wire::kMaxLinkFrameBytes);
  frame.resize(wire::build_neighbour_message(frame, message, {facts_.own.mac, facts_.target.mac, {}}));
  return frame;
}

Bytes Attacks::neighbour_claim() {
  wire::NeighbourMessage message;
  message.kind = wire::NeighbourMessageKind::advertisement;
  message.source = message.target = chance(80) ? facts_.peer.ipv6 : facts_.target.ipv6;
  message.destination = facts_.target.ipv6;
  message.has_link_address = true;
  message.link_address = facts_.own.mac;
  message.solicited = chance(50);
  message.override_known = true;
  Bytes frame(wire::kMaxLinkFrameBytes);
  frame.resize(wire::build_neighbour_message(frame, message, {facts_.own.mac, facts_.target.mac, {}}));
  return frame;
}

Bytes Attacks::broken_neighbour_message() {
  Bytes frame = chance(50) ? neighbour_solicitation() : neighbour_claim();
  frame[wire::kEthernetBytes + random(frame.size() - wire::kEthernetBytes)] ^=
      static_cast<uint8_t>(1 + random(255));
  return frame;
}

Bytes Attacks::echo() {
  wire::PathHeader path = foreign_path();
  Bytes message = random_bytes(8 + random(1000));
  message[1] = 0;
  if (!path.destination_gid.is_ipv4()) {
    message[0] = 128;
    return ipv6_frame(path, kProtocolIcmpv6, message);  // mostly with a wrong checksum
  }
  message[0] = 8;
  wire::store_be16(&message[2], 0);
  wire::store_be16(&message[2], checksum(message));
  return ipv4_frame(path, kProtocolIcmp, message);
}

Bytes Attacks::other_protocol() {
  constexpr std::array<uint8_t, 5> kProtocols{kProtocolTcp, wire::kProtocolUdp, 47, 132, 0};
  return of_path(foreign_path(), kProtocols[random(kProtocols.size())], random_bytes(random(600)));
}

/// Of a sound packet: a piece of it, or all of it that claims to be one.
Bytes Attacks::fragment() {
  wire::PathHeader path = foreign_path();
  path.destination_gid = facts_.target.ipv4;
  path.source_gid = chance(50) ? facts_.peer.ipv4 : stranger(false);
  Bytes frame = packet(path, fields_for(any_qp(), wire::Opcode::rc_write_only), 1024);
  uint8_t* ip = &frame[wire::kEthernetBytes];
  const auto more = static_cast<uint16_t>(chance(50) ? 0x2000 : 0);
  wire::store_be16(ip + wire::kIpv4FragmentAt,
                   static_cast<uint16_t>(more | (more == 0 ? 1 + random(100) : random(100))));
  wire::store_be16(ip + wire::kIpv4ChecksumAt, 0);
  wire::store_be16(ip + wire::kIpv4ChecksumAt, checksum({ip, wire::kIpv4Bytes}));
  return frame;
}

}  // namespace faultline::hostile
