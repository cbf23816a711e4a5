// SPDX-License-Identifier: BSD-3-Clause
// The ICRC of a short packet in one pass over it, by carry-less multiplication. A library's CRC takes two
// calls, for the headers with their masked bits and for the rest, each with a beginning and an end that cost
// more than 64 bytes of payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace faultline::wire {

/// Above this a library's wider multiplications make up for its calls.
inline constexpr size_t kMaxFoldedIpBytes = 512;

/// Whether this CPU multiplies so.
extern const bool kIcrcFolds;

/// As icrc_of_ip_packet: of whole words, and at least the headers up to the BTH. Only where kIcrcFolds.
[[nodiscard]] uint32_t fold_ipv4_packet(std::span<const uint8_t> ip_packet_without_icrc);
[[nodiscard]] uint32_t fold_ipv6_packet(std::span<const uint8_t> ip_packet_without_icrc);

}  // namespace faultline::wire
