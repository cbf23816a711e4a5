// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/icrc.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include <isa-l/crc.h>

#include "stack/wire/byte_order.hpp"
#include "stack/wire/layout.hpp"
#include "stack/wire/packet.hpp"

namespace faultline::wire {
namespace {

constexpr uint32_t kLeadingOnesBytes = 8;

/// The masked headers of the longest kind, and room for a short packet behind them.
constexpr uint32_t kScratchBytes = 256;

/// Masks what routers and congestion marks may change (IBA A17.3.3). `ip` points at a copy of IP, UDP and
/// BTH.
template <bool kIpv6>
void mask_variant_fields(uint8_t* ip) {
  if constexpr (kIpv6) {
    ip[0] |= 0x0f;
    std::memset(ip + 1, 0xff, 3);
    ip[kIpv6HopLimitAt] = 0xff;
  } else {
    ip[kIpv4TosAt] = 0xff;
    ip[kIpv4TtlAt] = 0xff;
    std::memset(ip + kIpv4ChecksumAt, 0xff, 2);
  }
  uint8_t* udp = ip + (kIpv6 ? kIpv6Bytes : kIpv4Bytes);
  std::memset(udp + kUdpChecksumAt, 0xff, 2);
  udp[kUdpBytes + kBthReservedAt] = 0xff;
}

template <bool kIpv6>
uint32_t icrc_of(std::span<const uint8_t> packet) {
  constexpr size_t kHeaderBytes = (kIpv6 ? kIpv6Bytes : kIpv4Bytes) + kUdpBytes + kBthBytes;
  assert(packet.size() >= kHeaderBytes);
  std::array<uint8_t, kScratchBytes> scratch;
  std::memset(scratch.data(), 0xff, kLeadingOnesBytes);
  // A second call of the CRC costs more than copying a short packet; long ones are left where they are.
  const size_t copied = packet.size() <= kScratchBytes - kLeadingOnesBytes ? packet.size() : kHeaderBytes;
  std::memcpy(scratch.data() + kLeadingOnesBytes, packet.data(), copied);
  mask_variant_fields<kIpv6>(scratch.data() + kLeadingOnesBytes);
  const uint32_t state = icrc_update(kIcrcStart, {scratch.data(), kLeadingOnesBytes + copied});
  return copied == packet.size() ? state : icrc_update(state, packet.subspan(copied));
}

}  // namespace

// ISA-L's function takes and gives the CRC in its finished (inverted) form, as zlib's does, so that calls
// chain.
uint32_t icrc_update(uint32_t state, std::span<const uint8_t> bytes) {
  return crc32_gzip_refl(state, bytes.data(), bytes.size());
}

uint32_t icrc_of_ip_packet(std::span<const uint8_t> ip_packet_without_icrc, bool ipv6) {
  return ipv6 ? icrc_of<true>(ip_packet_without_icrc) : icrc_of<false>(ip_packet_without_icrc);
}

bool icrc_matches(const Packet& packet) {
  const uint32_t computed = icrc_of_ip_packet(
      {packet.frame + packet.ip_offset, static_cast<size_t>(packet.icrc_offset - packet.ip_offset)},
      packet.ipv6);
  return computed == load_le32(packet.frame + packet.icrc_offset);
}

}  // namespace faultline::wire
