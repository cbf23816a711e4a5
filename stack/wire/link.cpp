// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/link.hpp"

#include <algorithm>
#include <cassert>

#include "stack/wire/byte_order.hpp"
#include "stack/wire/checksum.hpp"
#include "stack/wire/layout.hpp"

namespace faultline::wire {
namespace {

constexpr size_t kArpBytes = 28;
constexpr size_t kIcmpBytes = 8;
constexpr uint8_t kProtocolIcmp = 1;
constexpr uint8_t kIcmpEchoReply = 0;
constexpr uint8_t kIcmpEchoRequest = 8;
constexpr uint8_t kReplyHopLimit = 64;

MacAddress load_mac(const uint8_t* from) {
  MacAddress mac;
  std::copy_n(from, mac.bytes.size(), mac.bytes.begin());
  return mac;
}
void store_mac(uint8_t* to, const MacAddress& mac) {
  std::copy(mac.bytes.begin(), mac.bytes.end(), to);
}

uint16_t checksum_of(std::span<const uint8_t> bytes) {
  return static_cast<uint16_t>(~fold_sum(ones_sum(bytes)));
}
bool checksum_is_right(std::span<const uint8_t> bytes) {
  return fold_sum(ones_sum(bytes)) == 0xffff;
}

bool is_unicast_ipv4(uint32_t ip) {
  return ip != 0 && (ip >> 28) < 0xe && (ip >> 24) != 127;
}

}  // namespace

bool parse_arp(std::span<const uint8_t> frame, ArpPacket& packet) {
  if (frame.size() < kEthernetBytes + kArpBytes || load_be16(&frame[12]) != kEtherTypeArp) return false;
  const uint8_t* arp = &frame[kEthernetBytes];
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

size_t build_arp(std::span<uint8_t> frame, const ArpPacket& packet, const MacAddress& destination) {
  if (frame.size() < kMinFrameBytes) return 0;
  std::fill_n(frame.begin(), kMinFrameBytes, uint8_t{0});
  store_mac(&frame[0], destination);
  store_mac(&frame[6], packet.sender_mac);
  store_be16(&frame[12], kEtherTypeArp);
  uint8_t* arp = &frame[kEthernetBytes];
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

size_t answer_echo(std::span<uint8_t> frame, const MacAddress& own_mac, uint32_t own_ip) {
  if (frame.size() < kEthernetBytes + kIpv4Bytes + kIcmpBytes || load_be16(&frame[12]) != kEtherTypeIpv4)
    return 0;
  const MacAddress sender = load_mac(&frame[6]);
  if (is_multicast(sender) || load_mac(&frame[0]) != own_mac) return 0;

  uint8_t* ip = &frame[kEthernetBytes];
  if (ip[0] != kIpv4VersionAndLength || ip[kIpv4ProtocolAt] != kProtocolIcmp) return 0;
  const bool fragment = (load_be16(ip + kIpv4FragmentAt) & kIpv4FragmentMask) != 0;
  if (fragment || load_be32(ip + kIpv4DestinationAt) != own_ip ||
      !is_unicast_ipv4(load_be32(ip + kIpv4SourceAt)))
    return 0;
  const size_t total_bytes = load_be16(ip + kIpv4TotalLengthAt);
  if (total_bytes < kIpv4Bytes + kIcmpBytes || total_bytes > frame.size() - kEthernetBytes) return 0;
  if (!checksum_is_right({ip, kIpv4Bytes})) return 0;

  const std::span<uint8_t> icmp{ip + kIpv4Bytes, total_bytes - kIpv4Bytes};
  if (icmp[0] != kIcmpEchoRequest || icmp[1] != 0 || !checksum_is_right(icmp)) return 0;

  store_mac(&frame[0], sender);
  store_mac(&frame[6], own_mac);
  store_be32(ip + kIpv4DestinationAt, load_be32(ip + kIpv4SourceAt));
  store_be32(ip + kIpv4SourceAt, own_ip);
  ip[kIpv4TtlAt] = kReplyHopLimit;
  store_be16(ip + kIpv4ChecksumAt, 0);
  store_be16(ip + kIpv4ChecksumAt, checksum_of({ip, kIpv4Bytes}));
  icmp[0] = kIcmpEchoReply;
  store_be16(&icmp[2], 0);
  store_be16(&icmp[2], checksum_of(icmp));
  return kEthernetBytes + total_bytes;
}

uint32_t largest_path_mtu_bytes(uint32_t layer3_mtu_bytes, bool ipv6) {
  constexpr uint32_t kExtendedBytes = 16 + 4;  // RETH and ImmDt
  const uint32_t ip_bytes = ipv6 ? kIpv6Bytes : kIpv4Bytes;
  const uint32_t overhead = ip_bytes + kUdpBytes + kBthBytes + kExtendedBytes + kIcrcBytes;
  for (uint32_t path_mtu = kMaxPathMtuBytes; path_mtu >= 256; path_mtu /= 2)
    if (layer3_mtu_bytes >= path_mtu + overhead) return path_mtu;
  return 0;
}

OffloadLayout prepare_checksum_offload(std::span<uint8_t> frame, bool udp) {
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
  if (!layout.ipv6) store_be16(ip + kIpv4ChecksumAt, 0);
  if (udp) {
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
