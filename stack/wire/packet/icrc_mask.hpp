// SPDX-License-Identifier: BSD-3-Clause
// Bits that the ICRC treats as ones, because routers and congestion marks may change them (IBA A17.3.3).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "stack/wire/packet/layout.hpp"

namespace faultline::wire {

/// Sets these bits in a mask in which the IP header begins at byte `ip_at`.
template <bool kIpv6, size_t kBytes>
constexpr void set_changeable_bits(std::array<uint8_t, kBytes>& mask, size_t ip_at) {
  const size_t udp_at = ip_at + (kIpv6 ? kIpv6Bytes : kIpv4Bytes);
  if constexpr (kIpv6) {
    mask[ip_at] = 0x0f;
    mask[ip_at + 1] = mask[ip_at + 2] = mask[ip_at + 3] = 0xff;
    mask[ip_at + kIpv6HopLimitAt] = 0xff;
  } else {
    mask[ip_at + kIpv4TosAt] = mask[ip_at + kIpv4TtlAt] = 0xff;
    mask[ip_at + kIpv4ChecksumAt] = mask[ip_at + kIpv4ChecksumAt + 1] = 0xff;
  }
  mask[udp_at + kUdpChecksumAt] = mask[udp_at + kUdpChecksumAt + 1] = 0xff;
  mask[udp_at + kUdpBytes + kBthReservedAt] = 0xff;
}

}  // namespace faultline::wire
