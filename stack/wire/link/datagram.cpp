// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/link/datagram.hpp"

#include <algorithm>

#include "stack/wire/link/link_layout.hpp"

namespace faultline::wire {

std::optional<OutgoingDatagram> datagram_of(std::span<uint8_t> frame) {
  if (frame.size() < kEthernetBytes + kIpv4Bytes + kUdpBytes) return std::nullopt;
  const uint16_t ether_type = load_be16(&frame[kEthernetBytes - 2]);
  const bool ipv6 = ether_type == kEtherTypeIpv6;
  const uint32_t payload_at = udp_payload_offset(ipv6);
  if ((!ipv6 && ether_type != kEtherTypeIpv4) || frame.size() < payload_at) return std::nullopt;
  uint8_t* const ip = &frame[kEthernetBytes];
  const uint8_t* const udp = frame.data() + payload_at - kUdpBytes;
  if (ip[ipv6 ? kIpv6NextHeaderAt : kIpv4ProtocolAt] != kProtocolUdp ||
      load_be16(udp + kUdpDestinationPortAt) != kRoceUdpPort)
    return std::nullopt;
  const uint32_t udp_bytes = load_be16(udp + kUdpLengthAt);
  if (udp_bytes < kUdpBytes || udp_bytes - kUdpBytes > frame.size() - payload_at) return std::nullopt;

  OutgoingDatagram datagram;
  if (ipv6) {
    datagram.source = load_ipv6(ip + kIpv6SourceAt);
    datagram.destination = load_ipv6(ip + kIpv6DestinationAt);
    datagram.traffic_class = static_cast<uint8_t>(load_be16(ip) >> 4);
  } else {
    datagram.source = Gid::from_ipv4(load_be32(ip + kIpv4SourceAt));
    datagram.destination = Gid::from_ipv4(load_be32(ip + kIpv4DestinationAt));
    datagram.traffic_class = ip[kIpv4TosAt];
  }
  datagram.payload = frame.subspan(payload_at, udp_bytes - kUdpBytes);
  return datagram;
}

uint32_t write_datagram_headers(std::span<uint8_t> frame, const IncomingDatagram& datagram,
                                uint32_t payload_bytes) {
  const bool ipv6 = !datagram.destination.is_ipv4();
  const uint32_t payload_at = udp_payload_offset(ipv6);
  if (payload_bytes > kMaxDatagramBytes || frame.size() < payload_at + payload_bytes) return 0;
  const uint32_t udp_bytes = kUdpBytes + payload_bytes;
  write_ethernet(frame.data(), {datagram.source_mac, datagram.destination_mac, {}},
                 ipv6 ? kEtherTypeIpv6 : kEtherTypeIpv4);
  uint8_t* const ip = &frame[kEthernetBytes];
  if (ipv6) {
    store_be32(ip, 6U << 28 | uint32_t{datagram.traffic_class} << 20);
    store_be16(ip + kIpv6PayloadLengthAt, static_cast<uint16_t>(udp_bytes));
    ip[kIpv6NextHeaderAt] = kProtocolUdp;
    ip[kIpv6HopLimitAt] = kReplyHopLimit;
    store_ipv6(ip + kIpv6SourceAt, datagram.source);
    store_ipv6(ip + kIpv6DestinationAt, datagram.destination);
  } else {
    std::fill_n(ip, kIpv4Bytes, uint8_t{0});
    ip[0] = kIpv4VersionAndLength;
    ip[kIpv4TosAt] = datagram.traffic_class;
    store_be16(ip + kIpv4TotalLengthAt, static_cast<uint16_t>(kIpv4Bytes + udp_bytes));
    store_be16(ip + kIpv4IdentificationAt, datagram.ipv4_identification);
    store_be16(ip + kIpv4FragmentAt, kIpv4DontFragment);
    ip[kIpv4TtlAt] = kReplyHopLimit;
    ip[kIpv4ProtocolAt] = kProtocolUdp;
    store_be32(ip + kIpv4SourceAt, datagram.source.ipv4());
    store_be32(ip + kIpv4DestinationAt, datagram.destination.ipv4());
    store_be16(ip + kIpv4ChecksumAt, checksum_of({ip, kIpv4Bytes}));
  }
  uint8_t* const udp = &frame[payload_at - kUdpBytes];
  store_be16(udp, datagram.source_port);
  store_be16(udp + kUdpDestinationPortAt, kRoceUdpPort);
  store_be16(udp + kUdpLengthAt, static_cast<uint16_t>(udp_bytes));
  store_be16(udp + kUdpChecksumAt, 0);
  return payload_at + payload_bytes;
}

}  // namespace faultline::wire
