// SPDX-License-Identifier: BSD-3-Clause
// Folding (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel
// 2009): what has been read is a polynomial that is moved on over the next block by multiplication with
// x^distance mod P. Zeros in front of a polynomial change nothing, so the packet is cut into blocks from its
// end: the first block is a part of one, and there is no rest.
#include "stack/wire/icrc_fold.hpp"

#include <array>
#include <cassert>

#include <immintrin.h>

#include "stack/wire/layout.hpp"

namespace faultline::wire {
namespace {

constexpr size_t kBlockBytes = sizeof(__m128i);
constexpr unsigned kLanes = 4;

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

/// What moves 128 bits on by so many blocks: for the first eight bytes, and for the last.
template <unsigned kBlocks>
__m128i mover() {
  constexpr unsigned kBits = 128 * kBlocks;
  static_assert(power_of_x(512 + 32) == 0x154442bd4 && power_of_x(512 - 32) == 0x1c6e41596, "as published");
  return _mm_set_epi64x(power_of_x(kBits - 32), power_of_x(kBits + 32));
}

template <unsigned kBlocks>
[[gnu::target("avx,pclmul"), gnu::always_inline]] inline __m128i moved(__m128i state) {
  const __m128i by = mover<kBlocks>();
  return _mm_xor_si128(_mm_clmulepi64_si128(state, by, 0x00), _mm_clmulepi64_si128(state, by, 0x11));
}

/// 128 bits to 32: twice by a part of them, then Barrett's reduction.
[[gnu::target("avx,pclmul"), gnu::always_inline]] inline uint32_t crc_of(__m128i state) {
  const __m128i low_word = _mm_set_epi32(0, 0, 0, -1);
  const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);  // x^64 / P, and P
  state = _mm_xor_si128(_mm_clmulepi64_si128(state, mover<1>(), 0x10), _mm_srli_si128(state, 8));
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

/// The blocks of one packet.
template <bool kIpv6>
struct Blocks {
  const uint8_t* ip;  ///< of block 0, which begins up to a block before the IP header
  const uint8_t* mask;
  __m128i first;

  static constexpr size_t kHeaderBytes = (kIpv6 ? kIpv6Bytes : kIpv4Bytes) + kUdpBytes + kBthReservedAt + 1;
  /// Blocks that can have bits to mask: those of the headers, wherever the first one ends.
  static constexpr unsigned kMasked = 1 + (kHeaderBytes + kBlockBytes - 1) / kBlockBytes;
  static_assert((kMasked + 1) * kBlockBytes <= sizeof kMask<kIpv6>);

  [[gnu::target("avx,pclmul"), gnu::always_inline]] __m128i at(unsigned index) const {
    if (index == 0) return first;
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(ip + size_t{index} * kBlockBytes));
    if (index >= kMasked) return block;
    return _mm_or_si128(
        block, _mm_loadu_si128(reinterpret_cast<const __m128i*>(mask + size_t{index} * kBlockBytes)));
  }
};

/// `kFirst` blocks, one to a lane, and then `groups` times four.
template <bool kIpv6, unsigned kFirst>
class Fold {
 public:
  [[gnu::target("avx,pclmul"), gnu::always_inline]] explicit Fold(const Blocks<kIpv6>& blocks)
      : blocks_(blocks) {
    begin<0>();
    begin<1>();
    begin<2>();
    begin<3>();
  }

  [[gnu::target("avx,pclmul"), gnu::always_inline]] uint32_t over(size_t groups) {
    if (groups == 0) return end<kLanes - kFirst>();
    next<0, kFirst>();
    next<1, kFirst>();
    next<2, kFirst>();
    next<3, kFirst>();
    for (; groups != 1; --groups) {
      next<0, kFirst + kLanes>();
      next<1, kFirst + kLanes>();
      next<2, kFirst + kLanes>();
      next<3, kFirst + kLanes>();
      blocks_.ip += kLanes * kBlockBytes;
    }
    return end<0>();
  }

 private:
  template <unsigned kLane>
  [[gnu::target("avx,pclmul"), gnu::always_inline]] void begin() {
    if constexpr (kLane + kFirst >= kLanes) lanes_[kLane] = blocks_.at(kLane + kFirst - kLanes);
  }
  /// Of a group that begins with the block of that index.
  template <unsigned kLane, unsigned kIndex>
  [[gnu::target("avx,pclmul"), gnu::always_inline]] void next() {
    constexpr bool kIsEmpty = kIndex == kFirst && kLane + kFirst < kLanes;
    static_assert(kFirst + kLanes >= Blocks<kIpv6>::kMasked, "groups behind the first are as they stand");
    const __m128i block = blocks_.at(kIndex + kLane);
    lanes_[kLane] = kIsEmpty ? block : _mm_xor_si128(moved<kLanes>(lanes_[kLane]), block);
  }
  template <unsigned kEmptyLanes>
  [[gnu::target("avx,pclmul"), gnu::always_inline]] uint32_t end() const {
    __m128i state = lanes_[3];
    if constexpr (kEmptyLanes <= 2) state = _mm_xor_si128(state, moved<1>(lanes_[2]));
    if constexpr (kEmptyLanes <= 1) state = _mm_xor_si128(state, moved<2>(lanes_[1]));
    if constexpr (kEmptyLanes <= 0) state = _mm_xor_si128(state, moved<3>(lanes_[0]));
    return crc_of(state);
  }

  Blocks<kIpv6> blocks_;
  __m128i lanes_[kLanes];
};

template <bool kIpv6>
[[gnu::target("avx,pclmul"), gnu::always_inline]] inline uint32_t fold_packet(
    std::span<const uint8_t> packet) {
  assert(packet.size() % 4 == 0 && packet.size() >= Blocks<kIpv6>::kHeaderBytes);
  const size_t ip_bytes_in_first = packet.size() % kBlockBytes;
  Blocks<kIpv6> blocks{
      packet.data() + ip_bytes_in_first - kBlockBytes, kMask<kIpv6>.data() + ip_bytes_in_first, {}};
  // Just these bytes: a load that spans those of several younger stores waits until they have left the store
  // buffer.
  const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(packet.data()));
  __m128i head;
  switch (ip_bytes_in_first) {
    case 0:
      head = _mm_setzero_si128();
      break;
    case 4:
      head = _mm_slli_si128(low, 12);
      break;
    case 8:
      head = _mm_slli_si128(low, 8);
      break;
    default: {
      int32_t third;
      __builtin_memcpy(&third, packet.data() + 8, sizeof third);
      head = _mm_slli_si128(_mm_insert_epi32(low, third, 2), 4);
    }
  }
  blocks.first = _mm_or_si128(head, _mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks.mask)));
  const size_t behind_first = packet.size() / kBlockBytes;
  const size_t groups = behind_first / kLanes;
  switch (behind_first % kLanes) {
    case 0:
      return Fold<kIpv6, 1>(blocks).over(groups);
    case 1:
      return Fold<kIpv6, 2>(blocks).over(groups);
    case 2:
      return Fold<kIpv6, 3>(blocks).over(groups);
    default:
      return Fold<kIpv6, 4>(blocks).over(groups);
  }
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
