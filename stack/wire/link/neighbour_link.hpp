// SPDX-License-Identifier: BSD-3-Clause
// What a link between two processes of one host needs of a frame, in the few loads that it has time for: the
// receiver of a frame to send, and whether a received frame is of the peer. Tagged frames, and IPv4 headers
// with options, are not the usual case: the caller then asks steering.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "stack/wire/mad/mad.hpp"
#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/headers.hpp"
#include "stack/wire/packet/layout.hpp"

namespace faultline::wire {

/// A MAC address as one number, for comparison only.
[[nodiscard]] inline uint64_t mac_word(const uint8_t* mac) {
  return uint64_t{load_le16(mac + 4)} << 32 | load_le32(mac);
}

namespace neighbour_link {

inline constexpr uint32_t kBthQpnAt = 4;
inline constexpr uint32_t kMacBytes = 6;

/// Returns the offset of the BTH in an untagged RoCEv2 frame over IPv4 without options, or over IPv6; 0 for
/// any other frame.
[[nodiscard]] inline uint32_t bth_at(std::span<const uint8_t> frame) {
  constexpr uint32_t kOverIpv4 = kEthernetBytes + kIpv4Bytes + kUdpBytes;
  constexpr uint32_t kOverIpv6 = kEthernetBytes + kIpv6Bytes + kUdpBytes;
  if (frame.size() < kOverIpv4 + kBthBytes) return 0;
  const uint8_t* const ip = frame.data() + kEthernetBytes;
  const uint16_t type = load_be16(ip - 2);
  if (type == kEtherTypeIpv4)
    return ip[0] == kIpv4VersionAndLength && ip[kIpv4ProtocolAt] == kProtocolUdp &&
                   load_be16(ip + kIpv4Bytes + kUdpDestinationPortAt) == kRoceUdpPort
               ? kOverIpv4
               : 0;
  if (type != kEtherTypeIpv6 || frame.size() < kOverIpv6 + kBthBytes) return 0;
  return ip[kIpv6NextHeaderAt] == kProtocolUdp &&
                 load_be16(ip + kIpv6Bytes + kUdpDestinationPortAt) == kRoceUdpPort
             ? kOverIpv6
             : 0;
}

}  // namespace neighbour_link

struct RoceReceiver {
  uint64_t mac;  ///< mac_word()
  uint32_t qpn;
};

/// Returns the receiver of a unicast RoCEv2 frame that is no management datagram; nullopt for any other
/// frame.
[[nodiscard]] inline std::optional<RoceReceiver> peek_unicast_receiver(std::span<const uint8_t> frame) {
  const uint32_t bth = neighbour_link::bth_at(frame);
  if (bth == 0 || (frame[0] & 1U) != 0) return std::nullopt;
  const uint32_t qpn = load_be32(&frame[bth + neighbour_link::kBthQpnAt]) & kQpnMask;
  if (qpn == kManagementQpn) return std::nullopt;
  return RoceReceiver{mac_word(frame.data()), qpn};
}

/// True for an untagged RoCEv2 frame over IPv4 from these addresses that is no management datagram.
[[nodiscard]] inline bool is_plain_roce_from(std::span<const uint8_t> frame, uint64_t mac, uint32_t ipv4) {
  constexpr uint32_t kOverIpv4 = kEthernetBytes + kIpv4Bytes + kUdpBytes;
  return neighbour_link::bth_at(frame) == kOverIpv4 && mac_word(&frame[neighbour_link::kMacBytes]) == mac &&
         load_be32(&frame[kEthernetBytes + kIpv4SourceAt]) == ipv4 &&
         (load_be32(&frame[kOverIpv4 + neighbour_link::kBthQpnAt]) & kQpnMask) != kManagementQpn;
}

// ---- the marker ----

/// A frame by which a process says that its later frames to a peer take their direct link. It follows the
/// earlier ones over the switch, which passes it to the peer's seat.
struct LinkMarker {
  uint16_t from_seat = 0;
  uint16_t to_seat = 0;
};
inline constexpr size_t kLinkMarkerBytes = 60;  ///< the least Ethernet frame
/// IEEE 802: Local Experimental EtherType 1.
inline constexpr uint16_t kEtherTypeMarker = 0x88b5;

/// Writes the marker; `frame` has kLinkMarkerBytes.
void write_link_marker(std::span<uint8_t> frame, const MacAddress& source, const MacAddress& destination,
                       const LinkMarker& marker);
/// Returns the marker in a frame; nullopt if the frame is none.
[[nodiscard]] std::optional<LinkMarker> parse_link_marker(std::span<const uint8_t> frame);

}  // namespace faultline::wire
