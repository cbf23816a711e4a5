// SPDX-License-Identifier: BSD-3-Clause
// The Internet checksum (RFC 1071) of IPv4 headers and of UDP over either IP.
#pragma once

#include <cstdint>
#include <span>

#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/layout.hpp"

namespace faultline::wire {

/// Ones' complement sum of the bytes as big-endian 16-bit words (an odd last byte is a word's high half), not
/// folded to 16 bits.
[[nodiscard]] uint32_t ones_sum(std::span<const uint8_t> bytes);

/// Folds a sum to 16 bits without inverting it: 0xffff for data that includes a correct checksum.
[[nodiscard]] constexpr uint16_t fold_sum(uint32_t sum) {
  sum = (sum & 0xffffU) + (sum >> 16);
  return static_cast<uint16_t>(sum + (sum >> 16));
}

/// True if the checksum of an IPv4 header without options is correct. Its words, in either byte order, then
/// add up to all ones (RFC 1071 2B).
[[nodiscard]] inline bool ipv4_checksum_holds(const uint8_t* header) {
  // Ones' complement sums are sums modulo 2^16 - 1, and 2^16 is congruent to 1. No header is all zeros.
  static_assert(kIpv4Bytes == 20);
  const uint64_t sum = uint64_t{load_le32(header)} + load_le32(header + 4) + load_le32(header + 8) +
                       load_le32(header + 12) + load_le32(header + 16);
  return sum % 0xffff == 0;
}

/// Sum of the pseudo-header (RFC 768, RFC 8200 8.1) and the UDP datagram. `ip` is the IP header; `datagram`
/// is the UDP header and everything that its length covers.
[[nodiscard]] uint16_t udp_sum(const uint8_t* ip, bool ipv6, std::span<const uint8_t> datagram);

}  // namespace faultline::wire
