// SPDX-License-Identifier: BSD-3-Clause
// Blocks of a pcapng file (draft-ietf-opsawg-pcapng). DPDK's rte_pcapng is no substitute: before
// release 23.11 it gives an interface no other name than DPDK's own, and a packet no comment. Debian 12
// has 22.11.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace faultline::glue::pcapng {

/// Values of the direction bits of epb_flags (section 4.3.1).
enum class Direction : uint8_t { in = 1, out = 2 };

/// An enhanced packet block of interface 0.
struct Packet {
  uint64_t time_ns = 0;  ///< CLOCK_REALTIME
  Direction direction = Direction::in;
  uint32_t original_bytes = 0;  ///< on the wire
  std::span<const uint8_t> bytes;
  std::string_view comment;  ///< opt_comment, UTF-8; empty: none
};

/// Bytes that a packet's block takes at most, beside the packet and its comment.
inline constexpr size_t kMostPacketOverheadBytes = 64;

// Each function stores one block at the start of `to` and returns its length in bytes, a multiple of 4. It
// returns 0 if the block does not fit, or if a text is longer than an option can be (65535 bytes). The bytes
// of `to` are undefined then.

/// Section header; `program` is shb_userappl.
[[nodiscard]] size_t write_section_header(std::span<uint8_t> to, std::string_view program);
/// Description of an Ethernet interface whose times are in nanoseconds: if_name and if_description.
[[nodiscard]] size_t write_interface(std::span<uint8_t> to, std::string_view name,
                                     std::string_view description);
[[nodiscard]] size_t write_packet(std::span<uint8_t> to, const Packet& packet);

}  // namespace faultline::glue::pcapng
