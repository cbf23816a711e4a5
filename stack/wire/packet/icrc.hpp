// SPDX-License-Identifier: BSD-3-Clause
// RoCEv2's invariant CRC: CRC-32 (IEEE, reflected), sent little-endian. IBA A17.3.3. It covers, in order:
// - 8 bytes 0xff;
// - the IP header with ToS, TTL and checksum (or traffic class, flow label and hop limit) as ones;
// - the UDP header with its checksum as ones;
// - the BTH with its reserved byte after the P_Key as ones;
// - the rest up to the ICRC.
#pragma once

#include <cstdint>
#include <span>

#include "stack/wire/packet/icrc_fold.hpp"

namespace faultline::wire {

/// Continues CRC-32 over `bytes`; `state` is an earlier result or kIcrcStart.
inline constexpr uint32_t kIcrcStart = 0;
[[nodiscard]] uint32_t icrc_update(uint32_t state, std::span<const uint8_t> bytes);

/// Computes the ICRC by a library, for any length and also for bytes that are not a packet.
[[nodiscard]] uint32_t icrc_by_library(std::span<const uint8_t> ip_packet_without_icrc, bool ipv6);

/// Returns the ICRC of a packet that this CPU has just written. The span starts at the IP header and ends
/// before the ICRC. It includes at least the headers up to the BTH and, with its pad, is a multiple of four
/// bytes. The value is sent in little-endian order.
[[nodiscard]] inline uint32_t icrc_of_ip_packet(std::span<const uint8_t> ip_packet_without_icrc, bool ipv6) {
  const IcrcFunction fold = kIcrcFold.of_written[ipv6 ? 1 : 0];
  if (ip_packet_without_icrc.size() <= kMaxFoldedIpBytes && fold != nullptr) [[likely]]
    return fold(ip_packet_without_icrc);
  return icrc_by_library(ip_packet_without_icrc, ipv6);
}

/// Returns the ICRC of a received packet.
[[nodiscard]] inline uint32_t icrc_of_received(std::span<const uint8_t> ip_packet_without_icrc, bool ipv6) {
  const IcrcFunction fold = kIcrcFold.of_received[ipv6 ? 1 : 0];
  if (ip_packet_without_icrc.size() <= kMaxFoldedIpBytes && fold != nullptr) [[likely]]
    return fold(ip_packet_without_icrc);
  return icrc_by_library(ip_packet_without_icrc, ipv6);
}

}  // namespace faultline::wire
