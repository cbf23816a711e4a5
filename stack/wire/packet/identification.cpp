// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/packet/identification.hpp"

#include <algorithm>
#include <cassert>

#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/icrc.hpp"
#include "stack/wire/packet/layout.hpp"

namespace faultline::wire {
namespace {

// CRC-32 as polynomials modulo x^32 + x^26 + ... + 1, reflected: the highest bit is the coefficient of x^0. A
// CRC over n zero bytes multiplies its state by x^(8n). ISA-L has no function for the way back.
constexpr uint32_t kCrcPolynomial = 0xedb88320;
constexpr uint32_t kCrcOne = 0x80000000;
constexpr uint32_t kWordBytes = 4;

constexpr uint32_t times_x(uint32_t value) {
  return value >> 1 ^ ((value & 1) != 0 ? kCrcPolynomial : 0);
}

constexpr uint32_t divided_by_x(uint32_t value) {
  return (value & kCrcOne) != 0 ? (value ^ kCrcPolynomial) << 1 | 1U : value << 1;
}

constexpr uint32_t product(uint32_t a, uint32_t b) {
  uint32_t result = 0;
  for (; a != 0; a <<= 1, b = times_x(b))
    if ((a & kCrcOne) != 0) result ^= b;
  return result;
}

/// Element n: x^(-32n), which undoes the CRC of n zero words.
constexpr auto kUndoWords = [] {
  std::array<uint32_t, kMaxFrameBytes / kWordBytes + 1> powers{};
  uint32_t power = kCrcOne;
  for (uint32_t& element : powers) {
    element = power;
    for (uint32_t bit = 0; bit < 8 * kWordBytes; ++bit) power = divided_by_x(power);
  }
  return powers;
}();

}  // namespace

std::optional<uint16_t> hidden_identification(const Packet& packet, IcrcForm form) {
  if (packet.ipv6 || (form == IcrcForm::rxe_flush && packet.info->operation != Operation::flush))
    return std::nullopt;
  const std::span<const uint8_t> covered{packet.frame + packet.ip_offset,
                                         static_cast<size_t>(packet.icrc_offset - packet.ip_offset)};
  uint32_t icrc = icrc_of_received(covered, false);
  size_t zeros_bytes = covered.size() - kIpv4IdentificationAt;
  if (form == IcrcForm::rxe_flush) {
    const auto again = covered.subspan(packet.bth_offset - packet.ip_offset);
    icrc = icrc_update(icrc, again);
    zeros_bytes += again.size();
  }
  if (zeros_bytes / kWordBytes >= kUndoWords.size()) return std::nullopt;
  // From the difference of the ICRCs to that of the word with the identification and the flags: everything
  // after it is the same in both packets. A CRC over a word starts by adding the word to its state.
  const uint32_t difference =
      product(icrc ^ load_le32(packet.frame + packet.icrc_offset), kUndoWords[zeros_bytes / kWordBytes]);
  if (difference >> 16 != 0) return std::nullopt;
  return static_cast<uint16_t>(packet.ipv4_identification() ^
                               __builtin_bswap16(static_cast<uint16_t>(difference)));
}

void IdentificationIcrc::use_length(uint32_t udp_payload_bytes) {
  if (udp_payload_bytes == udp_payload_bytes_) return;
  udp_payload_bytes_ = udp_payload_bytes;
  // From the identification to the ICRC, as the difference of two packets: zeros except one bit.
  constexpr std::array<uint8_t, 64> kZeros{};
  const uint32_t covered_bytes = kIpv4Bytes - kIpv4FragmentAt + kUdpBytes + udp_payload_bytes - kIcrcBytes;
  const auto over_zeros = [&](uint32_t state) {
    for (uint32_t left = covered_bytes; left != 0; left -= std::min<uint32_t>(left, kZeros.size()))
      state = icrc_update(state, std::span(kZeros).first(std::min<size_t>(left, kZeros.size())));
    return state;
  };
  const uint32_t of_zero = over_zeros(icrc_update(kIcrcStart, std::array<uint8_t, 2>{}));
  for (size_t bit = 0; bit < kBits; ++bit)
    of_bit_[bit] = of_zero ^ over_zeros(icrc_update(
                                 kIcrcStart, std::array<uint8_t, 2>{0, static_cast<uint8_t>(1U << bit)}));
}

uint32_t IdentificationIcrc::change_of(uint32_t identification) const {
  assert(identification < kMostTrainPackets);
  uint32_t change = 0;
  for (size_t bit = 0; bit < kBits; ++bit)
    if ((identification >> bit & 1) != 0) change ^= of_bit_[bit];
  return change;
}

void IdentificationIcrc::renumber(std::span<uint8_t> udp_payload, uint32_t identification) {
  assert(udp_payload.size() > kIcrcBytes);
  use_length(static_cast<uint32_t>(udp_payload.size()));
  uint8_t* const icrc = udp_payload.data() + udp_payload.size() - kIcrcBytes;
  store_le32(icrc, load_le32(icrc) ^ change_of(identification));
}

}  // namespace faultline::wire
