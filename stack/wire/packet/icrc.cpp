// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/packet/icrc.hpp"

#include <array>
#include <cassert>
#include <cstring>

#include <isa-l/crc.h>

#include "stack/wire/packet/blocks.hpp"
#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/icrc_mask.hpp"
#include "stack/wire/packet/layout.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::wire {
namespace {

constexpr size_t kLeadingOnesBytes = 8;
constexpr size_t kBlockBytes = sizeof(__m128i);

/// Eight bytes of ones and the part of IP, UDP and BTH that has bits to mask, in whole blocks. For IPv4 the
/// header ends with the BTH, for IPv6 within the BTH, after the masked byte.
template <size_t kBlocks>
using MaskedHeader = std::array<uint8_t, kBlocks * kBlockBytes>;

/// Mask with leading ones, and ones where bits may change.
template <bool kIpv6, size_t kBlocks>
constexpr MaskedHeader<kBlocks> make_mask() {
  MaskedHeader<kBlocks> mask{};
  for (size_t i = 0; i < kLeadingOnesBytes; ++i) mask[i] = 0xff;
  set_changeable_bits<kIpv6>(mask, kLeadingOnesBytes);
  return mask;
}

template <bool kIpv6>
uint32_t icrc_of(std::span<const uint8_t> packet) {
  constexpr size_t kBlocks = kIpv6 ? 4 : 3;
  constexpr size_t kHeaderBytes = kBlocks * kBlockBytes - kLeadingOnesBytes;
  static_assert(kHeaderBytes > (kIpv6 ? kIpv6Bytes : kIpv4Bytes) + kUdpBytes + kBthReservedAt);
  static_assert(kHeaderBytes <= (kIpv6 ? kIpv6Bytes : kIpv4Bytes) + kUdpBytes + kBthBytes);
  alignas(kBlockBytes) static constexpr MaskedHeader<kBlocks> kMask = make_mask<kIpv6, kBlocks>();
  assert(packet.size() >= kHeaderBytes);

  // Stored in whole blocks, as the CRC loads them: a store narrower than the load that follows would delay
  // that load.
  alignas(kBlockBytes) MaskedHeader<kBlocks> header;
  const auto* mask = reinterpret_cast<const __m128i*>(kMask.data());
  auto* out = reinterpret_cast<__m128i*>(header.data());
  const __m128i first =
      _mm_slli_si128(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(packet.data())), kLeadingOnesBytes);
  _mm_store_si128(out, _mm_or_si128(first, _mm_load_si128(mask)));
  for (size_t i = 1; i < kBlocks; ++i) {
    const uint8_t* at = packet.data() + i * kBlockBytes - kLeadingOnesBytes;
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    _mm_store_si128(out + i, _mm_or_si128(block, _mm_load_si128(mask + i)));
  }
  const uint32_t state = icrc_update(kIcrcStart, header);
  return icrc_update(state, packet.subspan(kHeaderBytes));
}

}  // namespace

// ISA-L's function takes and returns the CRC in its finished (inverted) form, as zlib's does, so calls can be
// chained.
uint32_t icrc_update(uint32_t state, std::span<const uint8_t> bytes) {
  return crc32_gzip_refl(state, bytes.data(), bytes.size());
}

uint32_t icrc_by_library(std::span<const uint8_t> ip_packet_without_icrc, bool ipv6) {
  return ipv6 ? icrc_of<true>(ip_packet_without_icrc) : icrc_of<false>(ip_packet_without_icrc);
}

bool icrc_matches(const Packet& packet) {
  const uint32_t computed = icrc_of_received(
      {packet.frame + packet.ip_offset, static_cast<size_t>(packet.icrc_offset - packet.ip_offset)},
      packet.ipv6);
  return computed == load_le32(packet.frame + packet.icrc_offset);
}

uint32_t icrc_before_payload(const Packet& packet) {
  return icrc_of_ip_packet(
      {packet.frame + packet.ip_offset, static_cast<size_t>(packet.payload_offset - packet.ip_offset)},
      packet.ipv6);
}

bool icrc_matches(const Packet& packet, uint32_t state_with_payload) {
  const uint8_t* const pad = packet.frame + packet.payload_offset + packet.payload_bytes;
  const auto pad_bytes = static_cast<size_t>(packet.frame + packet.icrc_offset - pad);
  const uint32_t computed =
      pad_bytes == 0 ? state_with_payload : icrc_update(state_with_payload, {pad, pad_bytes});
  return computed == load_le32(packet.frame + packet.icrc_offset);
}

bool has_rxe_flush_icrc(const Packet& packet) {
  if (packet.info->operation != Operation::flush) return false;
  const size_t offset = packet.ip_offset;
  const uint32_t right = icrc_of_ip_packet({packet.frame + offset, packet.icrc_offset - offset}, packet.ipv6);
  const uint32_t rxe = icrc_update(
      right, {packet.frame + packet.bth_offset, static_cast<size_t>(packet.icrc_offset - packet.bth_offset)});
  return rxe == load_le32(packet.frame + packet.icrc_offset);
}

}  // namespace faultline::wire
