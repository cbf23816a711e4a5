// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/packet/identification.hpp"

#include <algorithm>
#include <cassert>

#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/icrc.hpp"
#include "stack/wire/packet/layout.hpp"

namespace faultline::wire {

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

uint32_t IdentificationIcrc::find(const Packet& packet) {
  const std::span<const uint8_t> covered{packet.frame + packet.ip_offset,
                                         static_cast<size_t>(packet.icrc_offset - packet.ip_offset)};
  use_length(static_cast<uint32_t>(covered.size() + kIcrcBytes - kIpv4Bytes - kUdpBytes));
  const uint32_t assumed = packet.ipv4_identification();
  const uint32_t difference = icrc_of_received(covered, false) ^ load_le32(packet.frame + packet.icrc_offset);
  for (uint32_t identification = 0; assumed < kMostTrainPackets && identification < kMostTrainPackets;
       ++identification)
    if (change_of(identification ^ assumed) == difference) return identification;
  return kMostTrainPackets;
}

}  // namespace faultline::wire
