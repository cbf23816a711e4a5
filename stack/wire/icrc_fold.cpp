// SPDX-License-Identifier: BSD-3-Clause
// After Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel
// 2009). A packet is a polynomial; each block of it is multiplied with x^distance mod P, where the distance
// is that to the packet's end, and the products are added up. Of a short packet all these products are under
// way at once, where a sum that is moved on from block to block would wait for each. Zeros in front of a
// polynomial change nothing, so the packet is cut into blocks from its end: the first block is a part of one,
// and there is no rest.
#include "stack/wire/icrc_fold.hpp"

#include <array>
#include <cassert>
#include <cstring>

#include <immintrin.h>

#include "stack/wire/layout.hpp"

namespace faultline::wire {
namespace {

constexpr size_t kBlockBytes = sizeof(__m128i);
/// Of the longest packet: the first block is a part of one.
constexpr size_t kMaxBlocks = kMaxFoldedIpBytes / kBlockBytes + 1;

/// x^power mod P, in the reflected form that a carry-less multiplication of reflected operands wants: one bit
/// to the left.
constexpr int64_t power_of_x(unsigned power) {
  constexpr uint32_t kPolynomial = 0x04c11db7;
  uint32_t rest = 1;
  for (unsigned i = 0; i < power; ++i) rest = rest << 1 ^ ((rest & 0x80000000U) != 0 ? kPolynomial : 0);
  int64_t reflected = 0;
  for (unsigned bit = 0; bit < 32; ++bit) reflected |= int64_t{rest >> bit & 1} << (32 - bit);
  return reflected;
}

/// What moves a block's two halves to the packet's end: the last for the last block, and so back. The
/// products are of 96 bits.
struct alignas(kBlockBytes) Mover {
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

/// `behind`: where the bytes from the block on end, as a negative number of them.
[[gnu::target("avx,pclmul"), gnu::always_inline]] inline __m128i moved(__m128i block, ptrdiff_t behind) {
  const auto* const end = reinterpret_cast<const uint8_t*>(kMovers.data() + kMovers.size());
  const __m128i by = _mm_load_si128(reinterpret_cast<const __m128i*>(end + behind));
  return _mm_xor_si128(_mm_clmulepi64_si128(block, by, 0x00), _mm_clmulepi64_si128(block, by, 0x11));
}

/// 96 bits to 32: by a part of them, then Barrett's reduction.
[[gnu::target("avx,pclmul"), gnu::always_inline]] inline uint32_t crc_of(__m128i state) {
  const __m128i low_word = _mm_set_epi32(0, 0, 0, -1);
  const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);  // x^64 / P, and P
  state = _mm_xor_si128(
      _mm_clmulepi64_si128(_mm_and_si128(state, low_word), _mm_set_epi64x(0, power_of_x(64)), 0x00),
      _mm_srli_si128(state, 4));
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(state, low_word), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_word), barrett, 0x00);
  return ~static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(state, quotient), 1));
}

/// From a block before the IP header on: ones where routers and congestion marks may change bits (IBA
/// A17.3.3), and in front. Of the eight bytes of ones in front the CRC's initial state takes four away.
template <bool kIpv6>
constexpr auto make_mask() {
  constexpr size_t kIp = kBlockBytes;
  constexpr size_t kUdp = kIp + (kIpv6 ? kIpv6Bytes : kIpv4Bytes);
  std::array<uint8_t, 7 * kBlockBytes> mask{};
  for (size_t i = 1; i <= 4; ++i) mask[kIp - i] = 0xff;
  if constexpr (kIpv6) {
    mask[kIp] = 0x0f;
    mask[kIp + 1] = mask[kIp + 2] = mask[kIp + 3] = 0xff;
    mask[kIp + kIpv6HopLimitAt] = 0xff;
  } else {
    mask[kIp + kIpv4TosAt] = mask[kIp + kIpv4TtlAt] = 0xff;
    mask[kIp + kIpv4ChecksumAt] = mask[kIp + kIpv4ChecksumAt + 1] = 0xff;
  }
  mask[kUdp + kUdpChecksumAt] = mask[kUdp + kUdpChecksumAt + 1] = 0xff;
  mask[kUdp + kUdpBytes + kBthReservedAt] = 0xff;
  return mask;
}
template <bool kIpv6>
constexpr auto kMask = make_mask<kIpv6>();

/// What is in front of the first whole block, at the end of one. Just these bytes are loaded: a load that
/// spans those of several younger stores waits until they have left the store buffer.
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
  constexpr ptrdiff_t kBlock = kBlockBytes;
  constexpr size_t kHeaderBytes = (kIpv6 ? kIpv6Bytes : kIpv4Bytes) + kUdpBytes + kBthReservedAt + 1;
  // Blocks behind the first that can have bits to mask, wherever the first one ends; of the shortest packet
  // one less is there, and has none.
  constexpr size_t kMasked = (kHeaderBytes + kBlockBytes - 1) / kBlockBytes;
  static_assert((kMasked + 2) * kBlockBytes <= sizeof kMask<kIpv6>);
  assert(packet.size() % 4 == 0 && packet.size() >= (kMasked - 1) * kBlockBytes);

  const size_t in_first = packet.size() % kBlockBytes;
  const uint8_t* const mask = kMask<kIpv6>.data() + in_first;
  const uint8_t* const end = packet.data() + packet.size();
  ptrdiff_t at = -static_cast<ptrdiff_t>(packet.size() - in_first);
  const auto masked =
      [ mask, end ](ptrdiff_t block, size_t index) __attribute__((target("avx,pclmul"), always_inline)) {
    return _mm_or_si128(load(end + block), load(mask + index * kBlockBytes));
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

}  // namespace

const bool kIcrcFolds = [] {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx") && __builtin_cpu_supports("pclmul");
}();

[[gnu::target("avx,pclmul")]] uint32_t fold_ipv4_packet(std::span<const uint8_t> ip_packet_without_icrc) {
  return fold_packet<false>(ip_packet_without_icrc);
}

[[gnu::target("avx,pclmul")]] uint32_t fold_ipv6_packet(std::span<const uint8_t> ip_packet_without_icrc) {
  return fold_packet<true>(ip_packet_without_icrc);
}

}  // namespace faultline::wire
