// SPDX-License-Identifier: BSD-3-Clause
// The one place where lengths of a received frame are computed. Every sum below is of values that a preceding
// rung has bounded, so that no subtraction can go below zero (CVE-2026-46133 and CVE-2026-46043 are what
// happens otherwise).
#include <bit>

#include "stack/wire/checksum.hpp"
#include "stack/wire/packet.hpp"

namespace faultline::wire {
namespace {

/// What the IP header leaves to UDP.
struct IpPayload {
  uint32_t offset = 0;
  uint32_t bytes = 0;
};

ParseError parse_ipv4(std::span<const uint8_t> frame, uint8_t rx_checks, Packet& packet, IpPayload& out) {
  if (frame.size() < packet.ip_offset + kIpv4Bytes) return ParseError::runt;
  const uint8_t* ip = frame.data() + packet.ip_offset;
  if (ip[0] != kIpv4VersionAndLength) return ParseError::ip_header;
  if ((rx_checks & kIpChecksumVerified) == 0 && !ipv4_checksum_holds(ip)) return ParseError::ip_checksum;
  if ((load_be16(ip + kIpv4FragmentAt) & kIpv4FragmentMask) != 0) return ParseError::ip_fragment;
  // The frame may be longer: Ethernet pads short ones.
  const uint32_t total_bytes = load_be16(ip + kIpv4TotalLengthAt);
  if (total_bytes < kIpv4Bytes || total_bytes > frame.size() - packet.ip_offset) return ParseError::ip_length;
  if (ip[kIpv4ProtocolAt] != kProtocolUdp) return ParseError::not_udp;
  packet.ipv6 = false;
  packet.ecn = ip[kIpv4TosAt] & 3U;
  out = {.offset = packet.ip_offset + kIpv4Bytes, .bytes = total_bytes - kIpv4Bytes};
  return ParseError::none;
}

/// ::ffff:a.b.c.d
bool is_ipv4_mapped(const uint8_t* address) {
  return load_be64(address) == 0 && load_be32(address + 8) == 0xffff;
}

ParseError parse_ipv6(std::span<const uint8_t> frame, Packet& packet, IpPayload& out) {
  if (frame.size() < packet.ip_offset + kIpv6Bytes) return ParseError::runt;
  const uint8_t* ip = frame.data() + packet.ip_offset;
  if ((ip[0] >> 4) != 6) return ParseError::ip_header;
  // Such an address names an IPv4 node to this end alone (RFC 4291 2.5.5.2); on the wire it would pass for an
  // IPv4 peer's GID.
  if (is_ipv4_mapped(ip + kIpv6SourceAt) || is_ipv4_mapped(ip + kIpv6DestinationAt))
    return ParseError::ip_header;
  const uint32_t payload_bytes = load_be16(ip + kIpv6PayloadLengthAt);
  if (payload_bytes > frame.size() - packet.ip_offset - kIpv6Bytes) return ParseError::ip_length;
  if (ip[kIpv6NextHeaderAt] != kProtocolUdp) return ParseError::not_udp;
  packet.ipv6 = true;
  packet.ecn = static_cast<uint8_t>(ip[1] >> 4 & 3);
  out = {.offset = packet.ip_offset + kIpv6Bytes, .bytes = payload_bytes};
  return ParseError::none;
}

/// `udp` has at least the bytes of a UDP header.
ParseError parse_udp(const uint8_t* ip, bool ipv6, std::span<const uint8_t> udp, uint8_t rx_checks) {
  if (load_be16(udp.data() + kUdpDestinationPortAt) != kRoceUdpPort) return ParseError::udp_port;
  if (load_be16(udp.data() + kUdpLengthAt) != udp.size()) return ParseError::udp_length;
  // Zero is "none", over IPv6 too: IBA A17.3.2 makes RoCEv2 one of RFC 6935's tunnels.
  if ((rx_checks & kUdpChecksumVerified) == 0 && load_be16(udp.data() + kUdpChecksumAt) != 0 &&
      udp_sum(ip, ipv6, udp) != 0xffff)
    return ParseError::udp_checksum;
  return ParseError::none;
}

void read_bth(const uint8_t* at, Bth& bth) {
  const uint32_t flags = load_be32(at);
  const uint32_t destination = load_be32(at + 4);
  const uint32_t sequence = load_be32(at + 8);
  bth.opcode = static_cast<Opcode>(flags >> 24);
  bth.solicited = (flags & kBthSolicited) != 0;
  bth.migration = (flags & kBthMigration) != 0;
  bth.pad_bytes = static_cast<uint8_t>(flags >> kBthPadShift & 3);
  bth.header_version = static_cast<uint8_t>(flags >> kBthVersionShift & 0xf);
  bth.pkey = static_cast<uint16_t>(flags);
  bth.fecn = (destination & kBthFecn) != 0;
  bth.becn = (destination & kBthBecn) != 0;
  bth.destination_qpn = destination & kQpnMask;
  bth.ack_request = (sequence & kBthAckRequest) != 0;
  bth.selective_ack = (sequence & kBthSelectiveAck) != 0;
  bth.page_fault = (sequence & kBthPageFault) != 0;
  bth.page_ready = (sequence & kBthPageReady) != 0;
  bth.psn = Psn(sequence);
}

/// `bytes` is what the UDP header leaves: BTH to ICRC.
ParseError parse_transport(uint32_t offset, uint32_t bytes, Packet& packet) {
  if (bytes < kBthBytes + kIcrcBytes) return ParseError::header_length;
  read_bth(packet.frame + offset, packet.bth);
  if (packet.bth.header_version != 0) return ParseError::bth_version;
  const OpcodeInfo& info = opcode_info(packet.bth.opcode);
  if (!info.known) return ParseError::unknown_opcode;
  const uint32_t header_bytes = kBthBytes + info.extended_bytes;
  if (bytes < header_bytes + kIcrcBytes) return ParseError::header_length;
  const uint32_t padded_bytes = bytes - header_bytes - kIcrcBytes;
  const uint32_t pad_bytes = packet.bth.pad_bytes;
  if ((padded_bytes & 3) != 0 || (pad_bytes & ~uint32_t{info.pad_mask}) != 0 || pad_bytes > padded_bytes)
    return ParseError::pad_count;
  const uint32_t payload_bytes = padded_bytes - pad_bytes;
  if (payload_bytes < info.payload_min_bytes || payload_bytes > info.payload_max_bytes)
    return ParseError::payload_length;
  // Path MTUs are powers of two (IBA 9.7.7.1.1); which of them, the QP knows.
  if (info.payload == PayloadRule::full_mtu && !std::has_single_bit(payload_bytes))
    return ParseError::payload_length;

  packet.info = &info;
  packet.bth_offset = static_cast<uint16_t>(offset);
  packet.extended_offset = static_cast<uint16_t>(offset + kBthBytes);
  packet.payload_offset = static_cast<uint16_t>(offset + header_bytes);
  packet.payload_bytes = static_cast<uint16_t>(payload_bytes);
  packet.icrc_offset = static_cast<uint16_t>(offset + header_bytes + padded_bytes);
  return ParseError::none;
}

}  // namespace

ParseError parse(std::span<const uint8_t> frame, Packet& packet, uint8_t rx_checks) {
  if (frame.size() < kEthernetBytes + kVlanTagBytes) return ParseError::runt;
  packet.frame = frame.data();
  packet.ip_offset = kEthernetBytes;
  packet.has_vlan = false;
  packet.vlan_tci = 0;
  uint16_t ether_type = load_be16(frame.data() + kEthernetBytes - 2);
  if (ether_type == kEtherTypeVlan) {
    packet.has_vlan = true;
    packet.vlan_tci = load_be16(frame.data() + kEthernetBytes);
    packet.ip_offset = kEthernetBytes + kVlanTagBytes;
    ether_type = load_be16(frame.data() + packet.ip_offset - 2);
  }

  IpPayload udp;
  ParseError error = ParseError::not_ip;
  if (ether_type == kEtherTypeIpv4)
    error = parse_ipv4(frame, rx_checks, packet, udp);
  else if (ether_type == kEtherTypeIpv6)
    error = parse_ipv6(frame, packet, udp);
  if (error != ParseError::none) return error;

  if (udp.bytes < kUdpBytes) return ParseError::udp_length;
  error = parse_udp(frame.data() + packet.ip_offset, packet.ipv6, frame.subspan(udp.offset, udp.bytes),
                    rx_checks);
  if (error != ParseError::none) return error;
  return parse_transport(udp.offset + kUdpBytes, udp.bytes - kUdpBytes, packet);
}

}  // namespace faultline::wire
