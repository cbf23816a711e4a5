// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/link/link.hpp"

#include <algorithm>
#include <cassert>

#include "stack/wire/link/link_layout.hpp"

namespace faultline::wire {
namespace {

constexpr size_t kArpBytes = 28;
constexpr size_t kIcmpBytes = 8;
constexpr uint8_t kProtocolIcmp = 1;
constexpr uint8_t kIcmpEchoReply = 0;
constexpr uint8_t kIcmpEchoRequest = 8;

bool is_unicast_ipv4(uint32_t ip) {
  return ip != 0 && (ip >> 28) < 0xe && (ip >> 24) != 127;
}

size_t answer_echo_ipv4(std::span<uint8_t> frame, uint32_t ip_at, const MacAddress& own_mac,
                        std::span<const Gid> own) {
  if (frame.size() < ip_at + kIpv4Bytes + kIcmpBytes) return 0;
  uint8_t* ip = &frame[ip_at];
  if (ip[0] != kIpv4VersionAndLength || ip[kIpv4ProtocolAt] != kProtocolIcmp) return 0;
  if ((load_be16(ip + kIpv4FragmentAt) & kIpv4FragmentMask) != 0) return 0;
  const uint32_t source = load_be32(ip + kIpv4SourceAt);
  const uint32_t destination = load_be32(ip + kIpv4DestinationAt);
  if (!is_unicast_ipv4(source) || std::find(own.begin(), own.end(), Gid::from_ipv4(destination)) == own.end())
    return 0;
  const size_t total_bytes = load_be16(ip + kIpv4TotalLengthAt);
  if (total_bytes < kIpv4Bytes + kIcmpBytes || total_bytes > frame.size() - ip_at) return 0;
  if (!checksum_is_right({ip, kIpv4Bytes})) return 0;

  const std::span<uint8_t> icmp{ip + kIpv4Bytes, total_bytes - kIpv4Bytes};
  if (icmp[0] != kIcmpEchoRequest || icmp[1] != 0 || !checksum_is_right(icmp)) return 0;

  store_mac(&frame[0], load_mac(&frame[6]));
  store_mac(&frame[6], own_mac);
  store_be32(ip + kIpv4DestinationAt, source);
  store_be32(ip + kIpv4SourceAt, destination);
  ip[kIpv4TtlAt] = kReplyHopLimit;
  store_be16(ip + kIpv4ChecksumAt, 0);
  store_be16(ip + kIpv4ChecksumAt, checksum_of({ip, kIpv4Bytes}));
  icmp[0] = kIcmpEchoReply;
  store_be16(&icmp[2], 0);
  store_be16(&icmp[2], checksum_of(icmp));
  return ip_at + total_bytes;
}

}  // namespace

bool is_multicast(const Gid& gid) {
  return gid.is_ipv4() ? gid.ipv4() >> 28 == 0xe : gid.bytes[0] == 0xff;
}

bool is_link_local(const Gid& gid) {
  return gid.bytes[0] == 0xfe && (gid.bytes[1] & 0xc0) == 0x80;
}

MacAddress multicast_mac(const Gid& group) {
  const auto& b = group.bytes;
  if (group.is_ipv4()) return {{0x01, 0x00, 0x5e, static_cast<uint8_t>(b[13] & 0x7f), b[14], b[15]}};
  return {{0x33, 0x33, b[12], b[13], b[14], b[15]}};
}

bool parse_arp(std::span<const uint8_t> frame, ArpPacket& packet) {
  EthernetView ethernet;
  if (!read_ethernet(frame, ethernet) || ethernet.ether_type != kEtherTypeArp) return false;
  if (frame.size() < ethernet.payload_at + kArpBytes) return false;
  const uint8_t* arp = &frame[ethernet.payload_at];
  const bool ipv4_over_ethernet =
      load_be16(arp) == 1 && load_be16(arp + 2) == kEtherTypeIpv4 && arp[4] == 6 && arp[5] == 4;
  if (!ipv4_over_ethernet) return false;
  const uint16_t operation = load_be16(arp + 6);
  if (operation != 1 && operation != 2) return false;
  packet.operation = static_cast<ArpOperation>(operation);
  packet.sender_mac = load_mac(arp + 8);
  packet.sender_ip = load_be32(arp + 14);
  packet.target_mac = load_mac(arp + 18);
  packet.target_ip = load_be32(arp + 24);
  return !is_multicast(packet.sender_mac) && packet.sender_mac != MacAddress{};
}

size_t build_arp(std::span<uint8_t> frame, const ArpPacket& packet, const MacAddress& destination,
                 const VlanTag& vlan) {
  if (frame.size() < kMinFrameBytes) return 0;
  std::fill_n(frame.begin(), kMinFrameBytes, uint8_t{0});
  write_ethernet(frame.data(), {packet.sender_mac, destination, vlan}, kEtherTypeArp);
  uint8_t* arp = &frame[ethernet_bytes(vlan)];
  store_be16(arp, 1);
  store_be16(arp + 2, kEtherTypeIpv4);
  arp[4] = 6;
  arp[5] = 4;
  store_be16(arp + 6, static_cast<uint16_t>(packet.operation));
  store_mac(arp + 8, packet.sender_mac);
  store_be32(arp + 14, packet.sender_ip);
  store_mac(arp + 18, packet.target_mac);
  store_be32(arp + 24, packet.target_ip);
  return kMinFrameBytes;
}

size_t answer_echo(std::span<uint8_t> frame, const MacAddress& own_mac, std::span<const Gid> own) {
  EthernetView ethernet;
  if (!read_ethernet(frame, ethernet)) return 0;
  if (is_multicast(load_mac(&frame[6])) || load_mac(&frame[0]) != own_mac) return 0;
  if (ethernet.ether_type == kEtherTypeIpv4)
    return answer_echo_ipv4(frame, ethernet.payload_at, own_mac, own);
  if (ethernet.ether_type == kEtherTypeIpv6)
    return answer_echo_ipv6(frame, ethernet.payload_at, own_mac, own);
  return 0;
}

uint32_t largest_path_mtu_bytes(uint32_t layer3_mtu_bytes, bool ipv6) {
  constexpr uint32_t kExtendedBytes = 4 + 16 + 4;  // XRCETH, RETH and ImmDt
  const uint32_t ip_bytes = ipv6 ? kIpv6Bytes : kIpv4Bytes;
  const uint32_t overhead = ip_bytes + kUdpBytes + kBthBytes + kExtendedBytes + kIcrcBytes;
  for (uint32_t path_mtu = kMaxPathMtuBytes; path_mtu >= 256; path_mtu /= 2)
    if (layer3_mtu_bytes >= path_mtu + overhead) return path_mtu;
  return 0;
}

OffloadLayout prepare_checksum_offload(std::span<uint8_t> frame, OffloadedChecksums port) {
  assert(frame.size() >= kEthernetBytes + kVlanTagBytes + kIpv4Bytes + kUdpBytes);
  OffloadLayout layout;
  size_t offset = kEthernetBytes;
  uint16_t ether_type = load_be16(&frame[12]);
  if (ether_type == kEtherTypeVlan) {
    ether_type = load_be16(&frame[16]);
    offset += kVlanTagBytes;
  }
  layout.ipv6 = ether_type == kEtherTypeIpv6;
  layout.layer2_bytes = static_cast<uint8_t>(offset);
  layout.layer3_bytes = static_cast<uint8_t>(layout.ipv6 ? kIpv6Bytes : kIpv4Bytes);
  uint8_t* ip = &frame[offset];
  uint8_t* udp_header = ip + layout.layer3_bytes;
  assert(frame.size() >= offset + layout.layer3_bytes + kUdpBytes);
  // A NIC may compute UDP checksums only (virtio-net, vmxnet3).
  if (port.ipv4 && !layout.ipv6) store_be16(ip + kIpv4ChecksumAt, 0);
  if (port.udp) {
    const std::span<const uint8_t> addresses = layout.ipv6 ? std::span<const uint8_t>{ip + kIpv6SourceAt, 32}
                                                           : std::span<const uint8_t>{ip + kIpv4SourceAt, 8};
    store_be16(udp_header + kUdpChecksumAt,
               fold_sum(ones_sum(addresses) + kProtocolUdp + load_be16(udp_header + kUdpLengthAt)));
  }
  return layout;
}

void write_probe_header(std::span<uint8_t> frame, const MacAddress& source) {
  assert(frame.size() >= kEthernetBytes);
  constexpr MacAddress kNobody{{0x02, 0, 0, 0, 0, 0}};
  constexpr uint16_t kEtherTypeLocalExperiment = 0x88b5;
  store_mac(&frame[0], kNobody);
  store_mac(&frame[6], source);
  store_be16(&frame[12], kEtherTypeLocalExperiment);
}

}  // namespace faultline::wire
