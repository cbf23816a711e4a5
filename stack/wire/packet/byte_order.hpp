// SPDX-License-Identifier: BSD-3-Clause
// Unaligned loads and stores of network-order integers: each compiles to one move and one byte swap.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "stack/wire/packet/blocks.hpp"

namespace faultline::wire {

static_assert(std::endian::native == std::endian::little, "big-endian hosts are not built");

[[nodiscard]] inline uint16_t load_be16(const uint8_t* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return __builtin_bswap16(value);
}

[[nodiscard]] inline uint32_t load_be32(const uint8_t* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return __builtin_bswap32(value);
}

[[nodiscard]] inline uint64_t load_be64(const uint8_t* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return __builtin_bswap64(value);
}

inline void store_be16(uint8_t* at, uint16_t value) {
  value = __builtin_bswap16(value);
  std::memcpy(at, &value, sizeof value);
}

inline void store_be32(uint8_t* at, uint32_t value) {
  value = __builtin_bswap32(value);
  std::memcpy(at, &value, sizeof value);
}

inline void store_be64(uint8_t* at, uint64_t value) {
  value = __builtin_bswap64(value);
  std::memcpy(at, &value, sizeof value);
}

/// Stores sixteen bytes at once. The ICRC soon loads the packet in blocks of sixteen, so they are stored in
/// such blocks. A load that spans younger, narrower stores waits until they have left the store buffer.
inline void store_be128(uint8_t* at, uint64_t high, uint64_t low) {
  const __m128i block = _mm_set_epi64x(static_cast<int64_t>(__builtin_bswap64(low)),
                                       static_cast<int64_t>(__builtin_bswap64(high)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at), block);
}

[[nodiscard]] inline uint16_t load_le16(const uint8_t* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

[[nodiscard]] inline uint32_t load_le32(const uint8_t* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

inline void store_le32(uint8_t* at, uint32_t value) {
  std::memcpy(at, &value, sizeof value);
}

}  // namespace faultline::wire
