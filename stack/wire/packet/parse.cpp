// SPDX-License-Identifier: BSD-3-Clause
// The only place that computes lengths of a received frame. Every sum uses values that an earlier check has
// bounded, so no subtraction can underflow (as in CVE-2026-46133 and CVE-2026-46043).
#include <bit>

#include "stack/wire/packet/blocks.hpp"
#include "stack/wire/packet/bth_bytes.hpp"
#include "stack/wire/packet/checksum.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::wire {
namespace {

/// ::ffff:a.b.c.d
bool is_ipv4_mapped(const uint8_t* address) {
  return load_be64(address) == 0 && load_be32(address + 8) == 0xffff;
}

/// Recognises the usual frame in two comparisons: untagged, IPv4 without options or fragments, UDP to the
/// RoCE port without a checksum, and the BTH's version. Any other frame is checked field by field, which
/// determines its error.
[[gnu::always_inline]] inline bool is_plain(std::span<const uint8_t> frame) {
  constexpr uint32_t kUdpAt = kEthernetBytes + kIpv4Bytes;
  if (frame.size() < kUdpAt + kUdpBytes + kBthBytes + kIcrcBytes) return false;
  // EtherType; version, type of service, length; identification, fragment; time to live, protocol; the rest.
  const __m128i ip_mask =
      _mm_setr_epi8(-1, -1, -1, 0, 0, 0, 0, 0, kIpv4FragmentMask >> 8, -1, 0, -1, 0, 0, 0, 0);
  const __m128i ip = _mm_setr_epi8(kEtherTypeIpv4 >> 8, kEtherTypeIpv4 & 0xff, kIpv4VersionAndLength, 0, 0, 0,
                                   0, 0, 0, 0, 0, kProtocolUdp, 0, 0, 0, 0);
  // Destination port; length; checksum; opcode, version; the rest.
  const __m128i udp_mask = _mm_setr_epi8(-1, -1, 0, 0, -1, -1, 0, 0xf, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m128i udp =
      _mm_setr_epi8(static_cast<char>(kRoceUdpPort >> 8), static_cast<char>(kRoceUdpPort & 0xff), 0, 0, 0, 0,
                    0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  const auto load = [frame](uint32_t at) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(frame.data() + at));
  };
  const __m128i differs =
      _mm_or_si128(_mm_xor_si128(_mm_and_si128(load(kEthernetBytes - 2), ip_mask), ip),
                   _mm_xor_si128(_mm_and_si128(load(kUdpAt + kUdpDestinationPortAt), udp_mask), udp));
  return _mm_testz_si128(differs, differs) != 0;
}

[[gnu::always_inline]] inline ParseError parse_ipv6(const uint8_t* ip, size_t frame_bytes, Packet& packet,
                                                    uint32_t& udp_bytes) {
  if ((ip[0] >> 4) != 6) return ParseError::ip_header;
  // An IPv4-mapped address represents an IPv4 node only within a host (RFC 4291 2.5.5.2). On the wire it
  // would be mistaken for an IPv4 peer's GID.
  if (is_ipv4_mapped(ip + kIpv6SourceAt) || is_ipv4_mapped(ip + kIpv6DestinationAt))
    return ParseError::ip_header;
  const uint32_t payload_bytes = load_be16(ip + kIpv6PayloadLengthAt);
  if (payload_bytes > frame_bytes - kIpv6Bytes) return ParseError::ip_length;
  if (ip[kIpv6NextHeaderAt] != kProtocolUdp) return ParseError::not_udp;
  packet.ecn = static_cast<uint8_t>(ip[1] >> 4 & 3);
  udp_bytes = payload_bytes;
  return ParseError::none;
}

/// `bytes` is the length of the UDP payload: BTH to ICRC.
[[gnu::always_inline]] inline ParseError parse_transport(uint32_t offset, uint32_t bytes, Packet& packet) {
  if (bytes < kBthBytes + kIcrcBytes) return ParseError::header_length;
  read_bth(packet.frame + offset, packet.bth);
  if (packet.bth.header_version != 0) return ParseError::bth_version;
  const OpcodeInfo& info = opcode_info(packet.frame[offset]);
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
  // Path MTUs are powers of two (IBA 9.7.7.1.1); the QP checks which one.
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

/// Parses from the IP header on. There is one instance for each position and version of that header, so that
/// most offsets are constants. `kPlain`: is_plain() returned true.
template <uint32_t kIpAt, bool kIpv6, bool kPlain = false>
ParseError parse_from_ip(std::span<const uint8_t> frame, Packet& packet, uint8_t rx_checks) {
  constexpr uint32_t kUdpAt = kIpAt + (kIpv6 ? kIpv6Bytes : kIpv4Bytes);
  packet.ip_offset = kIpAt;
  packet.ipv6 = kIpv6;
  if (frame.size() < kUdpAt) return ParseError::runt;
  const uint8_t* const ip = frame.data() + kIpAt;
  uint32_t udp_bytes = 0;
  if constexpr (kIpv6) {
    const ParseError error = parse_ipv6(ip, frame.size() - kIpAt, packet, udp_bytes);
    if (error != ParseError::none) return error;
  } else {
    if (!kPlain && ip[0] != kIpv4VersionAndLength) return ParseError::ip_header;
    if ((rx_checks & kIpChecksumVerified) == 0 && !ipv4_checksum_holds(ip)) return ParseError::ip_checksum;
    if (!kPlain && (load_be16(ip + kIpv4FragmentAt) & kIpv4FragmentMask) != 0) return ParseError::ip_fragment;
    // The frame may be longer: Ethernet pads short ones.
    const uint32_t total_bytes = load_be16(ip + kIpv4TotalLengthAt);
    if (total_bytes < kIpv4Bytes || total_bytes > frame.size() - kIpAt) return ParseError::ip_length;
    if (!kPlain && ip[kIpv4ProtocolAt] != kProtocolUdp) return ParseError::not_udp;
    packet.ecn = ip[kIpv4TosAt] & 3U;
    udp_bytes = total_bytes - kIpv4Bytes;
  }

  const uint8_t* const udp = frame.data() + kUdpAt;
  if (udp_bytes < kUdpBytes) return ParseError::udp_length;
  if (!kPlain && load_be16(udp + kUdpDestinationPortAt) != kRoceUdpPort) return ParseError::udp_port;
  if (load_be16(udp + kUdpLengthAt) != udp_bytes) return ParseError::udp_length;
  // Zero means "none", over IPv6 too: IBA A17.3.2 makes RoCEv2 a tunnel in the sense of RFC 6935.
  if (!kPlain && (rx_checks & kUdpChecksumVerified) == 0 && load_be16(udp + kUdpChecksumAt) != 0 &&
      udp_sum(ip, kIpv6, {udp, udp_bytes}) != 0xffff)
    return ParseError::udp_checksum;
  return parse_transport(kUdpAt + kUdpBytes, udp_bytes - kUdpBytes, packet);
}

template <uint32_t kIpAt>
[[gnu::always_inline]] inline ParseError parse_behind_ethernet(std::span<const uint8_t> frame, Packet& packet,
                                                               uint8_t rx_checks, uint16_t ether_type) {
  if (ether_type == kEtherTypeIpv4) return parse_from_ip<kIpAt, false>(frame, packet, rx_checks);
  if (ether_type == kEtherTypeIpv6) return parse_from_ip<kIpAt, true>(frame, packet, rx_checks);
  packet.ip_offset = kIpAt;
  return ParseError::not_ip;
}

}  // namespace

ParseError parse(std::span<const uint8_t> frame, Packet& packet, uint8_t rx_checks) {
  if (is_plain(frame)) [[likely]] {
    packet.frame = frame.data();
    packet.has_vlan = false;
    packet.vlan_tci = 0;
    return parse_from_ip<kEthernetBytes, false, true>(frame, packet, rx_checks);
  }
  if (frame.size() < kEthernetBytes + kVlanTagBytes) return ParseError::runt;
  packet.frame = frame.data();
  const uint16_t ether_type = load_be16(frame.data() + kEthernetBytes - 2);
  packet.has_vlan = ether_type == kEtherTypeVlan;
  if (!packet.has_vlan) {
    packet.vlan_tci = 0;
    return parse_behind_ethernet<kEthernetBytes>(frame, packet, rx_checks, ether_type);
  }
  constexpr uint32_t kIpAt = kEthernetBytes + kVlanTagBytes;
  packet.vlan_tci = load_be16(frame.data() + kEthernetBytes);
  return parse_behind_ethernet<kIpAt>(frame, packet, rx_checks, load_be16(frame.data() + kIpAt - 2));
}

}  // namespace faultline::wire
