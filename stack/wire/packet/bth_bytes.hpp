// SPDX-License-Identifier: BSD-3-Clause
// Converts the BTH between its bytes and its value. Used by stack/wire only.
#pragma once

#include <cstdint>

#include "stack/wire/packet/blocks.hpp"
#include "stack/wire/packet/headers.hpp"

namespace faultline::wire {

/// Reads the BTH's twelve bytes; also loads four bytes after them, which are ignored. Clears reserved bits.
inline void read_bth(const uint8_t* at, Bth& bth) {
  const __m128i order = _mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, -1, 11, 10, 9, -1, 4, 8, -1, -1);
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&bth),
                   _mm_and_si128(_mm_shuffle_epi8(bytes, order), _mm_set_epi32(0x000087c0, -1, -1, -1)));
}

/// Returns the BTH as the last twelve of sixteen bytes, after four zeros. The pad count comes from
/// `pad_bytes`, not from the value.
[[nodiscard]] inline __m128i bytes_of(const Bth& bth, uint32_t pad_bytes) {
  const __m128i order = _mm_setr_epi8(-1, -1, -1, -1, 3, 2, 1, 0, 12, 6, 5, 4, 13, 10, 9, 8);
  // Loads two halves, as make_bth stores them.
  const auto* const halves = reinterpret_cast<const uint8_t*>(&bth);
  __m128i value = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(halves));
  value = _mm_unpacklo_epi64(value, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(halves + 8)));
  value = _mm_and_si128(value, _mm_set_epi32(0x000087c0, -1, -1, ~(3 << 20)));
  return _mm_or_si128(_mm_shuffle_epi8(value, order),
                      _mm_slli_si128(_mm_cvtsi32_si128(static_cast<int>(pad_bytes << 4)), 5));
}

}  // namespace faultline::wire
