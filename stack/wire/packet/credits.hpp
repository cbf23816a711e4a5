// SPDX-License-Identifier: BSD-3-Clause
// End-to-end credits: the number of posted receives of a responder, encoded in five bits of an AETH. IBA vol.
// 1, 9.7.7.2 and table 46.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "stack/wire/packet/headers.hpp"

namespace faultline::wire {

/// Receives by credit code. The remaining code, kAethCreditsInvalid, means "no limit".
inline constexpr std::array<uint32_t, 31> kCreditsOfCode = {
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

/// Returns the largest code for at most `receives`. From 2 on, the table has two codes for each power of two;
/// the bit below the top one selects between them.
[[nodiscard]] constexpr uint8_t credit_code_of(uint32_t receives) {
  if (receives < 2) return static_cast<uint8_t>(receives);
  constexpr auto kLargest = static_cast<uint32_t>(kCreditsOfCode.size() - 1);
  const auto top = static_cast<uint32_t>(std::bit_width(receives)) - 1;
  return static_cast<uint8_t>(std::min(2 * top + (receives >> (top - 1) & 1), kLargest));
}

}  // namespace faultline::wire
