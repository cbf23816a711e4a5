// SPDX-License-Identifier: BSD-3-Clause
// End-to-end credits: how many receives a responder has, as five bits of an AETH say it. IBA vol. 1, 9.7.7.2
// and table 46.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "stack/wire/packet/headers.hpp"

namespace faultline::wire {

/// By code; the one code beyond, kAethCreditsInvalid, says that there is no limit.
inline constexpr std::array<uint32_t, 31> kCreditsOfCode = {
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

/// The largest code that promises no more than `receives`: from 2 on the table has two codes to each power of
/// two, of which the next lower bit tells.
[[nodiscard]] constexpr uint8_t credit_code_of(uint32_t receives) {
  if (receives < 2) return static_cast<uint8_t>(receives);
  constexpr auto kLargest = static_cast<uint32_t>(kCreditsOfCode.size() - 1);
  const auto top = static_cast<uint32_t>(std::bit_width(receives)) - 1;
  return static_cast<uint8_t>(std::min(2 * top + (receives >> (top - 1) & 1), kLargest));
}

}  // namespace faultline::wire
