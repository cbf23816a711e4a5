// SPDX-License-Identifier: BSD-3-Clause
// Based on Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel
// 2009). A packet is a polynomial. Each block is multiplied with x^distance mod P, where the distance is that
// to the packet's end, and the products are added. For a short packet all these products are computed in
// parallel, whereas a sum that is carried from block to block would wait for each. Leading zeros do not
// change a polynomial, so the packet is cut into blocks from its end. Only the first block may be partial,
// and there is no remainder.
#include "stack/wire/packet/icrc_fold.hpp"

#include <array>
#include <cassert>
#include <cstring>

#include <immintrin.h>

#include "stack/wire/packet/icrc_mask.hpp"
#include "stack/wire/packet/layout.hpp"

// GCC 12's own header triggers this warning by its undefined values (GCC bug 105593).
#ifndef __clang__  // which has no such warning
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace faultline::wire {
namespace {

constexpr size_t kFoldBlockBytes = sizeof(__m128i);
constexpr size_t kGroupBytes = sizeof(__m512i);
/// Blocks of the longest packet; its first group may be partial.
constexpr size_t kMaxBlocks = (kMaxFoldedIpBytes + kGroupBytes) / kFoldBlockBytes;

/// x^power mod P, in the reflected form that carry-less multiplication of reflected operands needs: shifted
/// left by one bit.
constexpr int64_t power_of_x(unsigned power) {
  constexpr uint32_t kPolynomial = 0x04c11db7;
  uint32_t rest = 1;
  for (unsigned i = 0; i < power; ++i) rest = rest << 1 ^ ((rest & 0x80000000U) != 0 ? kPolynomial : 0);
  int64_t reflected = 0;
  for (unsigned bit = 0; bit < 32; ++bit) reflected |= int64_t{rest >> bit & 1} << (32 - bit);
  return reflected;
}

/// Factors that move a block's two halves to the packet's end. The last entry is for the last block, and so
/// on backwards. The products have 96 bits.
struct alignas(kFoldBlockBytes) Mover {
  int64_t first;
  int64_t last;
};
constexpr std::array<Mover, kMaxBlocks> kMovers = [] {
  std::array<Mover, kMaxBlocks> movers{};
  for (unsigned i = 0; i < kMaxBlocks; ++i)
    movers[kMaxBlocks - 1 - i] = {power_of_x(128 * i + 96), power_of_x(128 * i + 32)};
  return movers;
}();
static_assert(power_of_x(512 + 32) == 0x154442bd4 && power_of_x(512 - 32) == 0x1c6e41596, "as published");

[[gnu::target("avx,pclmul"), gnu::always_inline]] inline __m128i load(const uint8_t* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

/// `behind`: negative number of bytes from the block to the packet's end.
[[gnu::target("avx,pclmul"), gnu::always_inline]] inline __m128i moved(__m128i block, ptrdiff_t behind) {
  const auto* const end = reinterpret_cast<const uint8_t*>(kMovers.data() + kMovers.size());
  const __m128i by = _mm_load_si128(reinterpret_cast<const __m128i*>(end + behind));
  return _mm_xor_si128(_mm_clmulepi64_si128(block, by, 0x00), _mm_clmulepi64_si128(block, by, 0x11));
}

/// Reduces 96 bits to 32: folds one part, then applies Barrett's reduction.
[[gnu::target("avx,pclmul"), gnu::always_inline]] inline uint32_t crc_of(__m128i state) {
  constexpr int64_t kMove64 = power_of_x(64);
  const __m128i low_word = _mm_set_epi32(0, 0, 0, -1);
  const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);  // x^64 / P, and P
  state =
      _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(state, low_word), _mm_set_epi64x(0, kMove64), 0x00),
                    _mm_srli_si128(state, 4));
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(state, low_word), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_word), barrett, 0x00);
  return ~static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(state, quotient), 1));
}

/// Mask from one group before the IP header: ones where bits may change, and leading ones. The CRC's initial
/// state cancels four of the eight leading bytes of ones.
template <bool kIpv6>
constexpr auto make_mask() {
  constexpr size_t kIp = kGroupBytes;
  std::array<uint8_t, 3 * kGroupBytes> mask{};
  for (size_t i = 1; i <= 4; ++i) mask[kIp - i] = 0xff;
  set_changeable_bits<kIpv6>(mask, kIp);
  return mask;
}
template <bool kIpv6>
constexpr auto kMask = make_mask<kIpv6>();

/// Loads the bytes before the first whole block, at the end of a block. Loads just these bytes: a load that
/// spans several younger stores waits until they have left the store buffer.
[[gnu::target("avx,pclmul"), gnu::always_inline]] inline __m128i head_of(const uint8_t* packet,
                                                                         size_t bytes) {
  const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(packet));
  if (bytes == 8) return _mm_slli_si128(low, 8);
  if (bytes == 4) return _mm_slli_si128(low, 12);
  if (bytes == 0) return _mm_setzero_si128();
  int32_t third;
  std::memcpy(&third, packet + 8, sizeof third);
  return _mm_slli_si128(_mm_insert_epi32(low, third, 2), 4);
}

template <bool kIpv6>
[[gnu::target("avx,pclmul"), gnu::always_inline]] inline uint32_t fold_packet(
    std::span<const uint8_t> packet) {
  constexpr ptrdiff_t kBlock = kFoldBlockBytes;
  constexpr size_t kHeaderBytes = (kIpv6 ? kIpv6Bytes : kIpv4Bytes) + kUdpBytes + kBthReservedAt + 1;
  // Blocks after the first that may have bits to mask, wherever the first one ends. The shortest packet has
  // one block less, and that one would have none.
  constexpr size_t kMasked = (kHeaderBytes + kFoldBlockBytes - 1) / kFoldBlockBytes;
  assert(packet.size() % 4 == 0 && packet.size() >= (kMasked - 1) * kFoldBlockBytes);

  const size_t in_first = packet.size() % kFoldBlockBytes;
  const uint8_t* const mask = kMask<kIpv6>.data() + kGroupBytes - kFoldBlockBytes + in_first;
  const uint8_t* const end = packet.data() + packet.size();
  ptrdiff_t at = -static_cast<ptrdiff_t>(packet.size() - in_first);
  const auto masked =
      [ mask, end ](ptrdiff_t block, size_t index) __attribute__((target("avx,pclmul"), always_inline)) {
    return _mm_or_si128(load(end + block), load(mask + index * kFoldBlockBytes));
  };
  __m128i state = moved(_mm_or_si128(head_of(packet.data(), in_first), load(mask)), at - kBlock);
  state = _mm_xor_si128(state, moved(masked(at, 1), at));
  state = _mm_xor_si128(state, moved(masked(at + kBlock, 2), at + kBlock));
  if constexpr (kMasked == 4)
    state = _mm_xor_si128(state, moved(masked(at + 2 * kBlock, 3), at + 2 * kBlock));
  at += (kMasked - 1) * kBlock;
  if (at == 0) return crc_of(state);
  state = _mm_xor_si128(state, moved(masked(at, kMasked), at));
  for (at += kBlock; at != 0; at += kBlock) state = _mm_xor_si128(state, moved(load(end + at), at));
  return crc_of(state);
}

#define FAULTLINE_WIDE gnu::target("avx512f,avx512vl,vpclmulqdq,pclmul")

/// Loads four blocks at once, on CPUs that multiply four in the time of one. A load that spans several stores
/// waits until they have left the store buffer, so just-written data is loaded in the width in which it was
/// stored.
[[FAULTLINE_WIDE, gnu::always_inline]] inline __m512i group_at(const uint8_t* at, bool just_written) {
  if (!just_written) return _mm512_loadu_si512(at);
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + kGroupBytes / 2));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/// Loads the bytes before the first whole group, at the end of a group. Masked-out bytes are not accessed, so
/// they need not exist.
[[FAULTLINE_WIDE, gnu::always_inline]] inline __m512i received_head_group(const uint8_t* packet,
                                                                          size_t bytes) {
  static_assert(kGroupBytes == 16 * sizeof(uint32_t));
  const auto there = static_cast<__mmask16>(0xffff0000U >> (bytes / sizeof(uint32_t)));
  return _mm512_maskz_loadu_epi32(there, packet + bytes - kGroupBytes);
}

/// As received_head_group, in the widths in which the bytes were just stored.
[[FAULTLINE_WIDE, gnu::always_inline]] inline __m512i written_head_group(const uint8_t* packet,
                                                                         size_t bytes) {
  const size_t in_first = bytes % kFoldBlockBytes;
  const uint8_t* const at = packet + in_first;
  const __m128i none = _mm_setzero_si128();
  const __m128i head = head_of(packet, in_first);
  __m256i low;
  __m256i high;
  switch (bytes / kFoldBlockBytes) {
    case 0:
      low = _mm256_setzero_si256();
      high = _mm256_set_m128i(head, none);
      break;
    case 1:
      low = _mm256_setzero_si256();
      high = _mm256_set_m128i(load(at), head);
      break;
    case 2:
      low = _mm256_set_m128i(head, none);
      high = _mm256_set_m128i(load(at + kFoldBlockBytes), load(at));
      break;
    default:
      low = _mm256_set_m128i(load(at), head);
      high = _mm256_set_m128i(load(at + 2 * kFoldBlockBytes), load(at + kFoldBlockBytes));
  }
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

template <bool kIpv6>
[[FAULTLINE_WIDE, gnu::always_inline]] inline uint32_t fold_wide(std::span<const uint8_t> packet,
                                                                 bool just_written) {
  assert(packet.size() % 4 == 0);
  constexpr ptrdiff_t kGroup = kGroupBytes;
  const auto* const movers_end = reinterpret_cast<const uint8_t*>(kMovers.data() + kMovers.size());
  const size_t in_first = packet.size() % kGroupBytes;
  const uint8_t* const end = packet.data() + packet.size();
  const uint8_t* const mask = kMask<kIpv6>.data() + in_first;
  ptrdiff_t at = -static_cast<ptrdiff_t>(packet.size() - in_first);
  const __m512i head = just_written ? written_head_group(packet.data(), in_first)
                                    : received_head_group(packet.data(), in_first);
  __m512i group = _mm512_or_si512(head, _mm512_loadu_si512(mask));
  __m512i by = _mm512_loadu_si512(movers_end + at - kGroup);
  __m512i state =
      _mm512_xor_si512(_mm512_clmulepi64_epi128(group, by, 0x00), _mm512_clmulepi64_epi128(group, by, 0x11));
  if (at != 0) {
    group = _mm512_or_si512(group_at(end + at, just_written), _mm512_loadu_si512(mask + kGroupBytes));
    for (;;) {
      by = _mm512_loadu_si512(movers_end + at);
      state = _mm512_ternarylogic_epi64(state, _mm512_clmulepi64_epi128(group, by, 0x00),
                                        _mm512_clmulepi64_epi128(group, by, 0x11), 0x96);
      at += kGroup;
      if (at == 0) break;
      group = group_at(end + at, just_written);
    }
  }
  const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(state), _mm512_extracti64x4_epi64(state, 1));
  return crc_of(_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

[[gnu::target("avx,pclmul")]] uint32_t narrow_ipv4(std::span<const uint8_t> packet) {
  return fold_packet<false>(packet);
}
[[gnu::target("avx,pclmul")]] uint32_t narrow_ipv6(std::span<const uint8_t> packet) {
  return fold_packet<true>(packet);
}
[[FAULTLINE_WIDE]] uint32_t wide_ipv4_written(std::span<const uint8_t> packet) {
  return fold_wide<false>(packet, true);
}
[[FAULTLINE_WIDE]] uint32_t wide_ipv6_written(std::span<const uint8_t> packet) {
  return fold_wide<true>(packet, true);
}
[[FAULTLINE_WIDE]] uint32_t wide_ipv4_received(std::span<const uint8_t> packet) {
  return fold_wide<false>(packet, false);
}
[[FAULTLINE_WIDE]] uint32_t wide_ipv6_received(std::span<const uint8_t> packet) {
  return fold_wide<true>(packet, false);
}
#undef FAULTLINE_WIDE

}  // namespace

IcrcFold icrc_fold_of(FoldWidth width) {
  __builtin_cpu_init();
  switch (width) {
    case FoldWidth::narrow:
      if (__builtin_cpu_supports("avx") && __builtin_cpu_supports("pclmul"))
        return {{narrow_ipv4, narrow_ipv6}, {narrow_ipv4, narrow_ipv6}};
      break;
    case FoldWidth::wide:
      if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
          __builtin_cpu_supports("vpclmulqdq"))
        return {{wide_ipv4_written, wide_ipv6_written}, {wide_ipv4_received, wide_ipv6_received}};
      break;
  }
  return {};
}

const IcrcFold kIcrcFold = [] {
  const IcrcFold wide = icrc_fold_of(FoldWidth::wide);
  return wide.is_there() ? wide : icrc_fold_of(FoldWidth::narrow);
}();

}  // namespace faultline::wire
