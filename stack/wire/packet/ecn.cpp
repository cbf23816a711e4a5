// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/packet/ecn.hpp"

#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/checksum.hpp"
#include "stack/wire/packet/layout.hpp"

namespace faultline::wire {

bool mark_congestion_experienced(std::span<uint8_t> frame) {
  uint32_t ip_at = kEthernetBytes;
  if (frame.size() < ip_at + kVlanTagBytes) return false;
  if (load_be16(frame.data() + ip_at - 2) == kEtherTypeVlan) ip_at += kVlanTagBytes;
  const uint16_t ether_type = load_be16(frame.data() + ip_at - 2);
  uint8_t* const ip = frame.data() + ip_at;
  if (ether_type == kEtherTypeIpv4) {
    if (frame.size() < ip_at + kIpv4Bytes || ip[0] != kIpv4VersionAndLength) return false;
    uint8_t& tos = ip[kIpv4TosAt];
    if ((tos & kEcnMask) == 0) return false;
    tos = static_cast<uint8_t>(tos | kEcnCongestionExperienced);
    store_be16(ip + kIpv4ChecksumAt, 0);
    store_be16(ip + kIpv4ChecksumAt, static_cast<uint16_t>(~fold_sum(ones_sum({ip, kIpv4Bytes}))));
    return true;
  }
  if (ether_type != kEtherTypeIpv6 || frame.size() < ip_at + kIpv6Bytes) return false;
  // The traffic class spans the first two bytes; ECN is bits 5 and 4 of the second.
  constexpr unsigned kShift = 4;
  if ((ip[1] >> kShift & kEcnMask) == 0) return false;
  ip[1] = static_cast<uint8_t>(ip[1] | kEcnCongestionExperienced << kShift);
  return true;
}

}  // namespace faultline::wire
