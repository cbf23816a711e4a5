// SPDX-License-Identifier: BSD-3-Clause
// End-to-end credits: how many receives a responder has, as five bits of an AETH say it. IBA vol. 1, 9.7.7.2
// and table 46.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "stack/wire/headers.hpp"

namespace faultline::wire {

/// By code; the one code beyond, kAethCreditsInvalid, says that there is no limit.
inline constexpr std::array<uint32_t, 31> kCreditsOfCode = {
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

/// The largest code that promises no more than `receives`.
[[nodiscard]] constexpr uint8_t credit_code_of(uint32_t receives) {
  size_t code = kCreditsOfCode.size() - 1;
  while (kCreditsOfCode[code] > receives) --code;
  return static_cast<uint8_t>(code);
}

}  // namespace faultline::wire
