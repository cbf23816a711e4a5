// SPDX-License-Identifier: BSD-3-Clause
// RoCEv2's invariant CRC: CRC-32 (IEEE, reflected) over 8 bytes 0xff, the IP header with ToS, TTL and
// checksum (or traffic class, flow label and hop limit) as ones, the UDP header with its checksum as ones,
// the BTH with its reserved byte after the P_Key as ones, then the rest up to the ICRC; sent little-endian.
// IBA A17.3.3.
#pragma once

#include <cstdint>
#include <span>

#include "stack/wire/packet/icrc_fold.hpp"

namespace faultline::wire {

/// CRC-32 over `bytes` after those that gave `state`: an earlier result, or kIcrcStart.
inline constexpr uint32_t kIcrcStart = 0;
[[nodiscard]] uint32_t icrc_update(uint32_t state, std::span<const uint8_t> bytes);

/// By a library, whatever the length: of what is no packet too.
[[nodiscard]] uint32_t icrc_by_library(std::span<const uint8_t> ip_packet_without_icrc, bool ipv6);

/// ICRC over a whole packet that starts at its IP header and ends before the ICRC: its headers to the BTH at
/// least, and with its pad a multiple of four bytes. The value's little-endian bytes go on the wire.
[[nodiscard]] inline uint32_t icrc_of_ip_packet(std::span<const uint8_t> ip_packet_without_icrc, bool ipv6) {
  const IcrcFunction fold = kIcrcFold.of_written[ipv6 ? 1 : 0];
  if (ip_packet_without_icrc.size() <= kMaxFoldedIpBytes && fold != nullptr) [[likely]]
    return fold(ip_packet_without_icrc);
  return icrc_by_library(ip_packet_without_icrc, ipv6);
}

/// The same of one that came from elsewhere.
[[nodiscard]] inline uint32_t icrc_of_received(std::span<const uint8_t> ip_packet_without_icrc, bool ipv6) {
  const IcrcFunction fold = kIcrcFold.of_received[ipv6 ? 1 : 0];
  if (ip_packet_without_icrc.size() <= kMaxFoldedIpBytes && fold != nullptr) [[likely]]
    return fold(ip_packet_without_icrc);
  return icrc_by_library(ip_packet_without_icrc, ipv6);
}

}  // namespace faultline::wire
