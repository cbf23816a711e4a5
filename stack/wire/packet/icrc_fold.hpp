// SPDX-License-Identifier: BSD-3-Clause
// ICRC of a short packet in one pass, by instructions of the CPU. A library's CRC takes two calls, for the
// headers with masked bits and for the rest. Their start and end cost more than 64 bytes of payload.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace faultline::wire {

/// Above this size the library's wider multiplications outweigh its call overhead.
inline constexpr size_t kMaxFoldedIpBytes = 512;

/// As icrc_of_ip_packet: whole words, with at least the headers up to the BTH.
using IcrcFunction = uint32_t (*)(std::span<const uint8_t> ip_packet_without_icrc);

/// Functions for IPv4 and IPv6: for a packet that this CPU has just written, and for any other. Both give
/// correct results for both; they differ in speed.
struct IcrcFold {
  std::array<IcrcFunction, 2> of_written{};
  std::array<IcrcFunction, 2> of_received{};
  [[nodiscard]] bool is_there() const { return of_written[0] != nullptr; }
};

/// Blocks that one instruction multiplies: one, or four.
enum class FoldWidth : uint8_t { narrow, wide };
/// Returns the functions of this width; empty if the CPU does not support it.
[[nodiscard]] IcrcFold icrc_fold_of(FoldWidth width);

/// The fastest functions of this CPU, or none.
extern const IcrcFold kIcrcFold;

}  // namespace faultline::wire
