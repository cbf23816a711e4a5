// SPDX-License-Identifier: BSD-3-Clause
// IPv6 on a link: neighbour discovery and ICMPv6 echo. Every length is checked against the frame before it is
// used.
#include <algorithm>

#include "stack/wire/link/link.hpp"
#include "stack/wire/link/link_layout.hpp"

namespace faultline::wire {
namespace {

constexpr uint8_t kProtocolIcmpv6 = 58;
constexpr uint8_t kNeighbourHopLimit = 255;  // not forwarded by any router (RFC 4861, 3.1)

constexpr uint32_t kIcmpv6ChecksumAt = 2;
constexpr uint32_t kEchoBytes = 8;
constexpr uint8_t kEchoRequest = 128;
constexpr uint8_t kEchoReply = 129;

// Solicitation and advertisement: type, code, checksum, flags, target; then options in units of 8 bytes.
constexpr uint32_t kNeighbourFlagsAt = 4;
constexpr uint32_t kNeighbourTargetAt = 8;
constexpr uint32_t kNeighbourBytes = 24;
constexpr uint8_t kFlagRouter = 0x80;
constexpr uint8_t kFlagSolicited = 0x40;
constexpr uint8_t kFlagOverride = 0x20;
constexpr uint32_t kOptionUnitBytes = 8;
constexpr uint8_t kSourceLinkAddress = 1;
constexpr uint8_t kTargetLinkAddress = 2;
constexpr uint32_t kLinkAddressOptionBytes = 8;
static_assert(kEthernetBytes + kVlanTagBytes + kIpv6Bytes + kNeighbourBytes + kLinkAddressOptionBytes <=
              kMaxLinkFrameBytes);

uint32_t icmpv6_sum(const uint8_t* ip, std::span<const uint8_t> icmp) {
  // RFC 8200, 8.1: addresses, length, next header, then the message.
  return ones_sum({ip + kIpv6SourceAt, 32}) + static_cast<uint32_t>(icmp.size()) + kProtocolIcmpv6 +
         ones_sum(icmp);
}
void seal_icmpv6(const uint8_t* ip, std::span<uint8_t> icmp) {
  store_be16(&icmp[kIcmpv6ChecksumAt], 0);
  store_be16(&icmp[kIcmpv6ChecksumAt], static_cast<uint16_t>(~fold_sum(icmpv6_sum(ip, icmp))));
}

/// Returns the ICMPv6 message of at least `least_bytes` in an IPv6 packet without extension headers and with
/// a correct checksum; otherwise empty.
template <typename Byte>
std::span<Byte> icmpv6_message(std::span<Byte> frame, uint32_t ip_at, uint32_t least_bytes) {
  if (frame.size() < ip_at + kIpv6Bytes + least_bytes) return {};
  Byte* const ip = &frame[ip_at];
  if ((ip[0] >> 4) != 6 || ip[kIpv6NextHeaderAt] != kProtocolIcmpv6) return {};
  const size_t message_bytes = load_be16(ip + kIpv6PayloadLengthAt);
  if (message_bytes < least_bytes || message_bytes > frame.size() - ip_at - kIpv6Bytes) return {};
  const std::span<Byte> message{ip + kIpv6Bytes, message_bytes};
  if (fold_sum(icmpv6_sum(ip, message)) != 0xffff) return {};
  return message;
}

bool is_unspecified(const Gid& gid) {
  return gid.is_zero();
}
bool is_unicast_source(const Gid& gid) {
  Gid loopback;
  loopback.bytes[15] = 1;
  return !is_multicast(gid) && !is_unspecified(gid) && !gid.is_ipv4() && gid != loopback;
}

/// Walks the options. False if one has length zero or ends beyond the message, which makes the whole message
/// invalid.
bool read_options(std::span<const uint8_t> options, uint8_t wanted_type, NeighbourMessage& message) {
  while (!options.empty()) {
    if (options.size() < kOptionUnitBytes) return false;
    const size_t option_bytes = size_t{options[1]} * kOptionUnitBytes;
    if (option_bytes == 0 || option_bytes > options.size()) return false;
    if (options[0] == wanted_type && option_bytes == kLinkAddressOptionBytes) {
      message.link_address = load_mac(&options[2]);
      message.has_link_address = true;
    }
    options = options.subspan(option_bytes);
  }
  return true;
}

void write_ipv6(uint8_t* ip, const Gid& source, const Gid& destination, uint32_t payload_bytes) {
  store_be32(ip, 6U << 28);
  store_be16(ip + kIpv6PayloadLengthAt, static_cast<uint16_t>(payload_bytes));
  ip[kIpv6NextHeaderAt] = kProtocolIcmpv6;
  ip[kIpv6HopLimitAt] = kNeighbourHopLimit;
  store_ipv6(ip + kIpv6SourceAt, source);
  store_ipv6(ip + kIpv6DestinationAt, destination);
}

}  // namespace

Gid solicited_node_group(const Gid& target) {
  Gid group{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0}};
  std::copy_n(target.bytes.begin() + 13, 3, group.bytes.begin() + 13);
  return group;
}

// The halves of the MAC address around ff:fe, with the universal bit inverted.
uint64_t eui64(const MacAddress& mac) {
  constexpr uint8_t kUniversalBit = 2;
  const auto& b = mac.bytes;
  const std::array<uint8_t, 8> bytes{
      static_cast<uint8_t>(b[0] ^ kUniversalBit), b[1], b[2], 0xff, 0xfe, b[3], b[4], b[5]};
  return load_be64(bytes.data());
}

Gid link_local_gid(const MacAddress& mac) {
  Gid gid{{0xfe, 0x80}};
  store_be64(&gid.bytes[8], eui64(mac));
  return gid;
}

bool parse_neighbour_message(std::span<const uint8_t> frame, NeighbourMessage& message) {
  EthernetView ethernet;
  if (!read_ethernet(frame, ethernet) || ethernet.ether_type != kEtherTypeIpv6) return false;
  const std::span<const uint8_t> icmp = icmpv6_message(frame, ethernet.payload_at, kNeighbourBytes);
  if (icmp.empty()) return false;
  const uint8_t* ip = &frame[ethernet.payload_at];
  const bool solicitation = icmp[0] == static_cast<uint8_t>(NeighbourMessageKind::solicitation);
  if (!solicitation && icmp[0] != static_cast<uint8_t>(NeighbourMessageKind::advertisement)) return false;
  if (ip[kIpv6HopLimitAt] != kNeighbourHopLimit || icmp[1] != 0) return false;

  message = {};
  message.kind = static_cast<NeighbourMessageKind>(icmp[0]);
  message.sender_mac = load_mac(&frame[6]);
  message.source = load_ipv6(ip + kIpv6SourceAt);
  message.destination = load_ipv6(ip + kIpv6DestinationAt);
  message.target = load_ipv6(&icmp[kNeighbourTargetAt]);
  if (!is_unicast_source(message.target) || is_multicast(message.sender_mac)) return false;
  if (!read_options(icmp.subspan(kNeighbourBytes), solicitation ? kSourceLinkAddress : kTargetLinkAddress,
                    message))
    return false;
  if (message.has_link_address &&
      (is_multicast(message.link_address) || message.link_address == MacAddress{}))
    return false;

  if (solicitation) {
    if (!is_unspecified(message.source)) return is_unicast_source(message.source);
    // Duplicate address detection (RFC 4862, 5.4.2).
    return message.destination == solicited_node_group(message.target) && !message.has_link_address;
  }
  const uint8_t flags = icmp[kNeighbourFlagsAt];
  message.router = (flags & kFlagRouter) != 0;
  message.solicited = (flags & kFlagSolicited) != 0;
  message.override_known = (flags & kFlagOverride) != 0;
  return is_unicast_source(message.source) && !(message.solicited && is_multicast(message.destination));
}

size_t build_neighbour_message(std::span<uint8_t> frame, const NeighbourMessage& message,
                               const LinkHeader& link) {
  const uint32_t ip_at = ethernet_bytes(link.vlan);
  const uint32_t icmp_bytes = kNeighbourBytes + (message.has_link_address ? kLinkAddressOptionBytes : 0);
  const size_t frame_bytes = ip_at + kIpv6Bytes + icmp_bytes;
  if (frame.size() < frame_bytes) return 0;
  std::fill_n(frame.begin(), frame_bytes, uint8_t{0});
  write_ethernet(frame.data(), link, kEtherTypeIpv6);
  uint8_t* const ip = &frame[ip_at];
  write_ipv6(ip, message.source, message.destination, icmp_bytes);

  const std::span<uint8_t> icmp{ip + kIpv6Bytes, icmp_bytes};
  const bool advertisement = message.kind == NeighbourMessageKind::advertisement;
  icmp[0] = static_cast<uint8_t>(message.kind);
  if (advertisement)
    icmp[kNeighbourFlagsAt] =
        static_cast<uint8_t>((message.router ? kFlagRouter : 0) | (message.solicited ? kFlagSolicited : 0) |
                             (message.override_known ? kFlagOverride : 0));
  store_ipv6(&icmp[kNeighbourTargetAt], message.target);
  if (message.has_link_address) {
    icmp[kNeighbourBytes] = advertisement ? kTargetLinkAddress : kSourceLinkAddress;
    icmp[kNeighbourBytes + 1] = kLinkAddressOptionBytes / kOptionUnitBytes;
    store_mac(&icmp[kNeighbourBytes + 2], message.link_address);
  }
  seal_icmpv6(ip, icmp);
  return frame_bytes;
}

size_t answer_echo_ipv6(std::span<uint8_t> frame, uint32_t ip_at, const MacAddress& own_mac,
                        std::span<const Gid> own) {
  const std::span<uint8_t> icmp = icmpv6_message(frame, ip_at, kEchoBytes);
  if (icmp.empty() || icmp[0] != kEchoRequest || icmp[1] != 0) return 0;
  uint8_t* const ip = &frame[ip_at];
  const Gid source = load_ipv6(ip + kIpv6SourceAt);
  const Gid destination = load_ipv6(ip + kIpv6DestinationAt);
  if (!is_unicast_source(source) || std::find(own.begin(), own.end(), destination) == own.end()) return 0;

  store_mac(&frame[0], load_mac(&frame[6]));
  store_mac(&frame[6], own_mac);
  store_ipv6(ip + kIpv6SourceAt, destination);
  store_ipv6(ip + kIpv6DestinationAt, source);
  ip[kIpv6HopLimitAt] = kReplyHopLimit;
  icmp[0] = kEchoReply;
  seal_icmpv6(ip, icmp);
  return ip_at + kIpv6Bytes + icmp.size();
}

}  // namespace faultline::wire
