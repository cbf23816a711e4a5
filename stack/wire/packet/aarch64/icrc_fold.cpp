// SPDX-License-Identifier: BSD-3-Clause
// The CRC32 instructions of AArch64 compute the ICRC's polynomial. Each takes the result of the one before,
// so a long packet is faster by carry-less multiplication, which the library does.
#include "stack/wire/packet/icrc_fold.hpp"

#include <array>
#include <cassert>
#include <cstring>

#include <arm_acle.h>

#include "stack/wire/packet/icrc_mask.hpp"
#include "stack/wire/packet/layout.hpp"

namespace faultline::wire {
namespace {

constexpr size_t kWordBytes = sizeof(uint64_t);

uint64_t word_at(const uint8_t* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

/// Ones where bits of the IP, UDP and BTH headers may change, in whole words.
template <bool kIpv6>
constexpr auto make_mask() {
  constexpr size_t kHeaderBytes = (kIpv6 ? kIpv6Bytes : kIpv4Bytes) + kUdpBytes + kBthReservedAt + 1;
  std::array<uint8_t, (kHeaderBytes + kWordBytes - 1) / kWordBytes * kWordBytes> mask{};
  set_changeable_bits<kIpv6>(mask, 0);
  return mask;
}
template <bool kIpv6>
constexpr auto kMask = make_mask<kIpv6>();

template <bool kIpv6>
uint32_t crc_of_packet(std::span<const uint8_t> packet) {
  constexpr size_t kMasked = kMask<kIpv6>.size();
  static_assert(kMasked <= (kIpv6 ? kIpv6Bytes : kIpv4Bytes) + kUdpBytes + kBthBytes);
  assert(packet.size() % 4 == 0 && packet.size() >= kMasked);
  uint32_t state = __crc32d(~0U, ~uint64_t{0});  // the eight leading bytes of ones
  const uint8_t* at = packet.data();
  const uint8_t* const end = at + packet.size();
  for (size_t i = 0; i < kMasked; i += kWordBytes, at += kWordBytes)
    state = __crc32d(state, word_at(at) | word_at(kMask<kIpv6>.data() + i));
  for (; static_cast<size_t>(end - at) >= kWordBytes; at += kWordBytes) state = __crc32d(state, word_at(at));
  if (at != end) {
    uint32_t last;
    std::memcpy(&last, at, sizeof last);
    state = __crc32w(state, last);
  }
  return ~state;
}

}  // namespace

IcrcFold icrc_fold_of(FoldWidth width) {
  if (width != FoldWidth::narrow) return {};
  return {{crc_of_packet<false>, crc_of_packet<true>}, {crc_of_packet<false>, crc_of_packet<true>}};
}

const IcrcFold kIcrcFold = icrc_fold_of(FoldWidth::narrow);

}  // namespace faultline::wire
