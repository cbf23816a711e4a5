// SPDX-License-Identifier: BSD-3-Clause
// RoCEv2 packets as UDP sockets carry them. A socket sends and receives the UDP payload, from BTH to ICRC,
// and the kernel has the headers below it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "stack/wire/packet/headers.hpp"
#include "stack/wire/packet/layout.hpp"

namespace faultline::wire {

/// A packet for a socket.
struct OutgoingDatagram {
  Gid source;
  Gid destination;
  uint8_t traffic_class = 0;
  std::span<uint8_t> payload;  ///< within the frame
};

/// Returns the packet in an untagged frame that FrameTemplate has built; nullopt for a frame of another kind.
[[nodiscard]] std::optional<OutgoingDatagram> datagram_of(std::span<uint8_t> frame);

/// Offset of the UDP payload in an untagged frame.
[[nodiscard]] constexpr uint32_t udp_payload_offset(bool ipv6) {
  return kEthernetBytes + (ipv6 ? kIpv6Bytes : kIpv4Bytes) + kUdpBytes;
}

/// What a socket reports of a received datagram, and the MAC addresses that stand for the two hosts.
struct IncomingDatagram {
  MacAddress source_mac;
  MacAddress destination_mac;
  Gid source;  ///< both IPv4-mapped, or neither
  Gid destination;
  uint16_t source_port = 0;
  uint8_t traffic_class = 0;
  uint16_t ipv4_identification = 0;  ///< assumed: a socket does not report it
};

/// Longest UDP payload whose headers hold its length.
inline constexpr uint32_t kMaxDatagramBytes = 0xffff - kIpv4Bytes - kUdpBytes;

/// Writes the headers before the `payload_bytes` at udp_payload_offset(). DF is set, the hop limit is 64 and
/// there is no UDP checksum: sockets do not report these fields. Returns the length of the frame; 0 if
/// `frame` is too small for it.
[[nodiscard]] uint32_t write_datagram_headers(std::span<uint8_t> frame, const IncomingDatagram& datagram,
                                              uint32_t payload_bytes);

}  // namespace faultline::wire
