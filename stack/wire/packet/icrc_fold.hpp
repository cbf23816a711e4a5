// SPDX-License-Identifier: BSD-3-Clause
// The ICRC of a short packet in one pass over it, by carry-less multiplication. A library's CRC takes two
// calls, for the headers with their masked bits and for the rest, each with a beginning and an end that cost
// more than 64 bytes of payload.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace faultline::wire {

/// Above this a library's wider multiplications make up for its calls.
inline constexpr size_t kMaxFoldedIpBytes = 512;

/// As icrc_of_ip_packet: of whole words, and at least the headers up to the BTH.
using IcrcFunction = uint32_t (*)(std::span<const uint8_t> ip_packet_without_icrc);

/// For IPv4 and IPv6: of a packet that was just written by this CPU, and of any other. Both are right for
/// both.
struct IcrcFold {
  std::array<IcrcFunction, 2> of_written{};
  std::array<IcrcFunction, 2> of_received{};
  [[nodiscard]] bool is_there() const { return of_written[0] != nullptr; }
};

/// How many blocks one instruction multiplies: one, or four.
enum class FoldWidth : uint8_t { narrow, wide };
/// None where this CPU multiplies otherwise.
[[nodiscard]] IcrcFold icrc_fold_of(FoldWidth width);

/// The best that this CPU has, or none.
extern const IcrcFold kIcrcFold;

}  // namespace faultline::wire
