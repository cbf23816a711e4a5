// SPDX-License-Identifier: BSD-3-Clause
// RoCEv2 packets that are wrong in themselves: published failures of other stacks (docs/threats.md), real
// packets of the golden captures, as they are and with some of their bytes changed.
#include <algorithm>

#include "stack/wire/packet/layout.hpp"
#include "tests/interop/hostile/attacks.hpp"
#include "tests/unit/wire/reference_packet.hpp"

namespace faultline::hostile {

/// CVE-2026-46133: all opcodes, all UDP lengths up to 200, with a right ICRC or none.
Bytes Attacks::any_opcode_any_length() {
  const wire::PathHeader path = foreign_path();
  Bytes transport = random_bytes(random(201));
  if (transport.size() >= wire::kBthBytes) {
    transport[0] = static_cast<uint8_t>(random(256));
    transport[1] &= 0xf0;
    const uint32_t qpn = chance(50) ? any_qp().qpn : chance(50) ? 0xffffff : 0;
    wire::store_be32(&transport[4], qpn);
  }
  return wire::test::plain_frame(path, transport, 0,
                                 chance(70) ? 0 : 1 + static_cast<uint32_t>(random(1000)));
}

/// CVE-2026-46043: pads of more than there is.
Bytes Attacks::forged_pad() {
  const TargetQp& qp = any_qp();
  Bytes frame =
      packet(chance(50) ? foreign_path() : peers_path(), fields_for(qp, any_opcode(qp.service, true)), 16);
  const bool ipv6 = wire::load_be16(&frame[wire::kEthernetBytes - 2]) == wire::kEtherTypeIpv6;
  const size_t bth_at = wire::kEthernetBytes + (ipv6 ? wire::kIpv6Bytes : wire::kIpv4Bytes) + wire::kUdpBytes;
  frame[bth_at + 1] = static_cast<uint8_t>((frame[bth_at + 1] & 0xcf) | random(4) << 4);
  const size_t longest = frame.size() - bth_at;
  frame.resize(bth_at + wire::kBthBytes + random(longest - wire::kBthBytes + 8));
  repair(frame);
  return frame;
}

/// CVE-2026-46114: the length that an ATOMIC WRITE names, and the one that it has.
Bytes Attacks::atomic_write_length() {
  wire::PathHeader path = foreign_path();
  const TargetQp& qp = facts_.named("serves");
  wire::PacketFields fields = fields_for(qp, wire::Opcode::rc_atomic_write);
  fields.reth.length_bytes = chance(50) ? 0 : static_cast<uint32_t>(random_());
  Bytes frame = packet(path, fields);
  if (chance(50)) frame.resize(frame.size() - 4 * random(3));
  repair(frame);
  return frame;
}

Bytes Attacks::wrong_icrc() {
  const TargetQp& qp = any_qp();
  Bytes frame =
      packet(chance(50) ? foreign_path() : peers_path(), fields_for(qp, any_opcode(qp.service, true)), 1024);
  frame[frame.size() - 1 - random(4)] ^= static_cast<uint8_t>(1 + random(255));
  return frame;
}

Bytes Attacks::wrong_udp_checksum() {
  Bytes frame = packet(peers_path(), fields_for(facts_.named("serves"), wire::Opcode::rc_write_only));
  const size_t at = wire::kEthernetBytes + wire::kIpv4Bytes + wire::kUdpChecksumAt;
  frame[at] = static_cast<uint8_t>(1 + random(255));
  frame[at + 1] = static_cast<uint8_t>(random_());
  return frame;
}

Bytes Attacks::wrong_ip_header() {
  Bytes frame = packet(peers_path(), fields_for(facts_.named("serves"), wire::Opcode::rc_write_only));
  uint8_t* ip = &frame[wire::kEthernetBytes];
  switch (random(4)) {
    case 0:  // options, or a header that is too short to be one
      ip[0] = static_cast<uint8_t>(random(256));
      break;
    case 1:
      wire::store_be16(ip + wire::kIpv4TotalLengthAt, static_cast<uint16_t>(random_()));
      break;
    case 2:
      ip[wire::kIpv4ChecksumAt] ^= static_cast<uint8_t>(1 + random(255));
      break;
    default:
      wire::store_be16(ip + wire::kIpv4Bytes + wire::kUdpLengthAt, static_cast<uint16_t>(random_()));
  }
  return frame;
}

/// To the target, from a stranger or in the peer's name: addresses, lengths and checks as they would be.
Bytes Attacks::readdressed(const wire::test::Frame& golden, bool in_peers_name) {
  Bytes frame = golden;
  const uint16_t type = wire::load_be16(&frame[wire::kEthernetBytes - 2]);
  const bool ipv6 = type == wire::kEtherTypeIpv6;
  std::copy(facts_.target.mac.bytes.begin(), facts_.target.mac.bytes.end(), frame.begin());
  std::copy(facts_.own.mac.bytes.begin(), facts_.own.mac.bytes.end(), frame.begin() + 6);
  if (!ipv6 && type != wire::kEtherTypeIpv4) return frame;
  uint8_t* ip = &frame[wire::kEthernetBytes];
  const wire::Gid source = in_peers_name ? (ipv6 ? facts_.peer.ipv6 : facts_.peer.ipv4) : stranger(ipv6);
  if (ipv6) {
    std::copy(source.bytes.begin(), source.bytes.end(), ip + wire::kIpv6SourceAt);
    std::copy(facts_.target.ipv6.bytes.begin(), facts_.target.ipv6.bytes.end(),
              ip + wire::kIpv6DestinationAt);
  } else {
    wire::store_be32(ip + wire::kIpv4SourceAt, source.ipv4());
    wire::store_be32(ip + wire::kIpv4DestinationAt, facts_.target.ipv4.ipv4());
  }
  // Every other one to a QP that there is.
  const size_t bth_at = wire::kEthernetBytes + (ipv6 ? wire::kIpv6Bytes : wire::kIpv4Bytes) + wire::kUdpBytes;
  if (chance(50) && frame.size() >= bth_at + wire::kBthBytes) {
    const uint32_t flags = wire::load_be32(&frame[bth_at + 4]) & ~wire::kQpnMask;
    wire::store_be32(&frame[bth_at + 4], flags | any_qp().qpn);
  }
  repair(frame);
  return frame;
}

Bytes Attacks::golden_replayed() {
  const wire::test::Frame& golden = golden_[random(golden_.size())];
  if (chance(80)) return readdressed(golden, chance(30));
  Bytes frame = golden;  // the addresses of others in it
  std::copy(facts_.target.mac.bytes.begin(), facts_.target.mac.bytes.end(), frame.begin());
  std::copy(facts_.own.mac.bytes.begin(), facts_.own.mac.bytes.end(), frame.begin() + 6);
  return frame;
}

Bytes Attacks::golden_mutated() {
  Bytes frame = readdressed(golden_[random(golden_.size())], chance(30));
  for (uint64_t changes = 1 + random(8); changes != 0; --changes) {
    // The MAC addresses stay: the bridge would learn from one and go by the other.
    const size_t at = wire::kEthernetBytes - 2 + random(frame.size() - wire::kEthernetBytes + 2);
    frame[at] =
        chance(50) ? static_cast<uint8_t>(random_()) : frame[at] ^ static_cast<uint8_t>(1U << random(8));
  }
  if (chance(20)) frame.resize(wire::kEthernetBytes + random(frame.size() - wire::kEthernetBytes));
  if (chance(10)) frame.resize(frame.size() + random(300));
  if (chance(50)) repair(frame);
  return frame;
}

}  // namespace faultline::hostile
