// SPDX-License-Identifier: BSD-3-Clause
// RoCEv2's invariant CRC: CRC-32 (IEEE, reflected) over 8 bytes 0xff, the IP header with ToS, TTL and
// checksum (or traffic class, flow label and hop limit) as ones, the UDP header with its checksum as ones,
// the BTH with its reserved byte after the P_Key as ones, then the rest up to the ICRC; sent little-endian.
// IBA A17.3.3.
#pragma once

#include <cstdint>
#include <span>

#include "stack/wire/icrc_fold.hpp"

namespace faultline::wire {

/// Running CRC-32 state over `bytes`, from `seed` (a previous result, or kIcrcStart). Not yet inverted form
/// is internal: pass results on as they are and take `finish` at the end.
inline constexpr uint32_t kIcrcStart = 0;
[[nodiscard]] uint32_t icrc_update(uint32_t state, std::span<const uint8_t> bytes);

/// How: `fold` takes packets of whole words, as RoCEv2's all are, and is for short ones (icrc_fold.hpp);
/// `library` takes any.
enum class IcrcRoutine : uint8_t { library, fold };
[[nodiscard]] bool icrc_routine_supported(IcrcRoutine routine);
[[nodiscard]] uint32_t icrc_of_ip_packet_with(IcrcRoutine routine,
                                              std::span<const uint8_t> ip_packet_without_icrc, bool ipv6);

/// ICRC over a whole packet that starts at its IP header and ends before the ICRC. The value's little-endian
/// bytes go on the wire.
[[nodiscard]] inline uint32_t icrc_of_ip_packet(std::span<const uint8_t> ip_packet_without_icrc, bool ipv6) {
  if (ip_packet_without_icrc.size() <= kMaxFoldedIpBytes && kIcrcFolds) [[likely]]
    return ipv6 ? fold_ipv6_packet(ip_packet_without_icrc) : fold_ipv4_packet(ip_packet_without_icrc);
  return icrc_of_ip_packet_with(IcrcRoutine::library, ip_packet_without_icrc, ipv6);
}

}  // namespace faultline::wire
