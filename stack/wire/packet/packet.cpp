// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/packet/packet.hpp"

namespace faultline::wire {

std::string_view name_of(ParseError error) {
  switch (error) {
    case ParseError::none:
      return "none";
    case ParseError::runt:
      return "runt";
    case ParseError::not_ip:
      return "not_ip";
    case ParseError::ip_header:
      return "ip_header";
    case ParseError::ip_checksum:
      return "ip_checksum";
    case ParseError::ip_fragment:
      return "ip_fragment";
    case ParseError::ip_length:
      return "ip_length";
    case ParseError::not_udp:
      return "not_udp";
    case ParseError::udp_port:
      return "udp_port";
    case ParseError::udp_length:
      return "udp_length";
    case ParseError::udp_checksum:
      return "udp_checksum";
    case ParseError::bth_version:
      return "bth_version";
    case ParseError::unknown_opcode:
      return "unknown_opcode";
    case ParseError::header_length:
      return "header_length";
    case ParseError::pad_count:
      return "pad_count";
    case ParseError::payload_length:
      return "payload_length";
    case ParseError::icrc:
      return "icrc";
    case ParseError::identification:
      return "identification";
    case ParseError::count_:
      break;
  }
  return "unknown";
}

FrameKind classify(std::span<const uint8_t> frame) {
  if (frame.size() < kEthernetBytes) return FrameKind::other;
  uint32_t ip_offset = kEthernetBytes;
  uint16_t ether_type = load_be16(frame.data() + ip_offset - 2);
  if (ether_type == kEtherTypeVlan) {
    ip_offset += kVlanTagBytes;
    if (frame.size() < ip_offset) return FrameKind::other;
    ether_type = load_be16(frame.data() + ip_offset - 2);
  }
  const uint8_t* ip = frame.data() + ip_offset;
  switch (ether_type) {
    case kEtherTypeIpv4: {
      if (frame.size() < ip_offset + kIpv4Bytes) return FrameKind::ipv4_other;
      // `parse` rejects and counts IPv4 options, so the port is read after them.
      const uint32_t udp_at = ip_offset + 4U * (ip[0] & 0xfU);
      if (ip[kIpv4ProtocolAt] != kProtocolUdp || frame.size() < udp_at + kUdpBytes)
        return FrameKind::ipv4_other;
      return load_be16(frame.data() + udp_at + kUdpDestinationPortAt) == kRoceUdpPort ? FrameKind::roce
                                                                                      : FrameKind::ipv4_other;
    }
    case kEtherTypeIpv6:
      if (frame.size() < ip_offset + kIpv6Bytes + kUdpBytes || ip[kIpv6NextHeaderAt] != kProtocolUdp)
        return FrameKind::ipv6_other;
      return load_be16(ip + kIpv6Bytes + kUdpDestinationPortAt) == kRoceUdpPort ? FrameKind::roce
                                                                                : FrameKind::ipv6_other;
    case kEtherTypeArp:
      return FrameKind::arp;
    default:
      return FrameKind::other;
  }
}

MacAddress Packet::source_mac() const {
  MacAddress mac;
  std::memcpy(mac.bytes.data(), frame + mac.bytes.size(), mac.bytes.size());
  return mac;
}

MacAddress Packet::destination_mac() const {
  MacAddress mac;
  std::memcpy(mac.bytes.data(), frame, mac.bytes.size());
  return mac;
}

uint8_t Packet::traffic_class() const {
  if (ipv6) return static_cast<uint8_t>(load_be16(frame + ip_offset) >> 4);
  return frame[ip_offset + kIpv4TosAt];
}

uint32_t Packet::flow_label() const {
  return ipv6 ? load_be32(frame + ip_offset) & kIpv6FlowLabelMask : 0;
}

uint16_t Packet::ipv4_identification() const {
  return ipv6 ? uint16_t{0} : load_be16(frame + ip_offset + kIpv4IdentificationAt);
}

void Packet::write_grh(std::span<uint8_t, kGrhBytes> out) const {
  const uint8_t* ip = frame + ip_offset;
  if (ipv6) {
    std::memcpy(out.data(), ip, kIpv6Bytes);
  } else {
    std::memset(out.data(), 0, kGrhBytes - kIpv4Bytes);
    std::memcpy(out.data() + kGrhBytes - kIpv4Bytes, ip, kIpv4Bytes);
  }
}

}  // namespace faultline::wire
