// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/link/steering.hpp"

#include <algorithm>

#include "stack/wire/link/link_layout.hpp"
#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/icrc.hpp"

namespace faultline::wire {
namespace {

/// Offset of the BTH in a frame that classify called roce; nullopt if the BTH is incomplete.
std::optional<uint32_t> bth_at(std::span<const uint8_t> frame) {
  EthernetView ethernet;
  if (!read_ethernet(frame, ethernet)) return std::nullopt;
  const uint32_t ip_bytes = ethernet.ether_type == kEtherTypeIpv6 ? kIpv6Bytes : kIpv4Bytes;
  const uint32_t at = ethernet.payload_at + ip_bytes + kUdpBytes;
  if (frame.size() < at + kBthBytes) return std::nullopt;
  return at;
}

std::optional<Gid> gid_at(std::span<const uint8_t> frame, uint32_t ipv4_at, uint32_t ipv6_at) {
  EthernetView ethernet;
  if (!read_ethernet(frame, ethernet)) return std::nullopt;
  if (ethernet.ether_type == kEtherTypeIpv6) {
    if (frame.size() < ethernet.payload_at + kIpv6Bytes) return std::nullopt;
    return load_ipv6(&frame[ethernet.payload_at + ipv6_at]);
  }
  if (frame.size() < ethernet.payload_at + kIpv4Bytes) return std::nullopt;
  return Gid::from_ipv4(load_be32(&frame[ethernet.payload_at + ipv4_at]));
}

/// Offset of the management datagram in a frame with room for one; the ICRC may be missing.
std::optional<uint32_t> mad_at(std::span<const uint8_t> frame) {
  const std::optional<uint32_t> at = bth_at(frame);
  if (!at) return std::nullopt;
  const OpcodeInfo& info = opcode_info(frame[*at]);
  if (!info.known || !info.has(kDeth)) return std::nullopt;
  const uint32_t begin = *at + kBthBytes + info.extended_bytes;
  if (frame.size() < begin + kMadBytes) return std::nullopt;
  return begin;
}

}  // namespace

std::optional<EthernetAddresses> peek_ethernet(std::span<const uint8_t> frame) {
  if (frame.size() < kEthernetBytes) return std::nullopt;
  return EthernetAddresses{load_mac(frame.data()), load_mac(frame.data() + 6)};
}

uint32_t peek_destination_qpn(std::span<const uint8_t> frame) {
  constexpr uint32_t kDestinationQpnAt = 4;
  const std::optional<uint32_t> at = bth_at(frame);
  return at ? load_be32(&frame[*at + kDestinationQpnAt]) & kQpnMask : kMulticastQpn;
}

bool is_plain_ack(std::span<const uint8_t> frame) {
  constexpr uint32_t kAckKindMask = 0xe0;  // AETH syndrome, bits 6:5: 0 is an ACK (IBA 9.7.5.1.1)
  const std::optional<uint32_t> at = bth_at(frame);
  return at && frame.size() > *at + kBthBytes && frame[*at] == static_cast<uint8_t>(Opcode::rc_acknowledge) &&
         (frame[*at + kBthBytes] & kAckKindMask) == 0;
}

std::optional<Gid> peek_destination_gid(std::span<const uint8_t> frame) {
  return gid_at(frame, kIpv4DestinationAt, kIpv6DestinationAt);
}

std::optional<Gid> peek_source_gid(std::span<const uint8_t> frame) {
  return gid_at(frame, kIpv4SourceAt, kIpv6SourceAt);
}

std::optional<CmMad> peek_cm_message(std::span<const uint8_t> frame) {
  const std::optional<uint32_t> at = mad_at(frame);
  CmMad message;
  if (!at || CmMad::parse(frame.subspan(*at, kMadBytes), message) != MadError::none) return std::nullopt;
  return message;
}

bool may_have_cm_message(std::span<const uint8_t> frame) {
  constexpr size_t kLeast = kEthernetBytes + kIpv4Bytes + kUdpBytes + kBthBytes + kMadBytes;
  // A VLAN tag, IPv6, DETH and an immediate, and the ICRC.
  constexpr size_t kMost = kLeast + 4 + (kIpv6Bytes - kIpv4Bytes) + 8 + 4 + kIcrcBytes;
  return frame.size() >= kLeast && frame.size() <= kMost;
}

size_t replace_cm_message(std::span<uint8_t> frame, const MadBytes& message) {
  const std::optional<uint32_t> at = mad_at(frame);
  EthernetView ethernet;
  if (!at || frame.size() < *at + kMadBytes + kIcrcBytes || !read_ethernet(frame, ethernet)) return 0;
  std::copy(message.begin(), message.end(), frame.begin() + *at);
  // Clears the UDP checksum of the original message, if any: RoCEv2 needs none (IBA A17.3.2.2).
  store_be16(&frame[*bth_at(frame) - 2], 0);
  const uint32_t icrc_at = *at + kMadBytes;
  store_le32(&frame[icrc_at],
             icrc_of_ip_packet(frame.subspan(ethernet.payload_at, icrc_at - ethernet.payload_at),
                               ethernet.ether_type == kEtherTypeIpv6));
  return icrc_at + kIcrcBytes;
}

}  // namespace faultline::wire
