// SPDX-License-Identifier: BSD-3-Clause
// Byte layout of Ethernet and addresses, for the link's parsers and builders. Used by stack/wire only.
#pragma once

#include <algorithm>
#include <cstring>

#include "stack/wire/link/link.hpp"
#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/checksum.hpp"
#include "stack/wire/packet/layout.hpp"

namespace faultline::wire {

inline constexpr uint8_t kReplyHopLimit = 64;

inline MacAddress load_mac(const uint8_t* from) {
  MacAddress mac;
  std::copy_n(from, mac.bytes.size(), mac.bytes.begin());
  return mac;
}
inline void store_mac(uint8_t* to, const MacAddress& mac) {
  std::copy(mac.bytes.begin(), mac.bytes.end(), to);
}
inline Gid load_ipv6(const uint8_t* from) {
  Gid gid;
  std::copy_n(from, gid.bytes.size(), gid.bytes.begin());
  return gid;
}
inline void store_ipv6(uint8_t* to, const Gid& gid) {
  std::copy(gid.bytes.begin(), gid.bytes.end(), to);
}

/// Content of an Ethernet header, after at most one VLAN tag.
struct EthernetView {
  uint32_t payload_at = 0;
  uint16_t ether_type = 0;
  VlanTag vlan;
};
/// False if the frame is shorter than its header.
inline bool read_ethernet(std::span<const uint8_t> frame, EthernetView& view) {
  if (frame.size() < kEthernetBytes) return false;
  view.ether_type = load_be16(&frame[kEthernetBytes - 2]);
  view.payload_at = kEthernetBytes;
  view.vlan = {};
  if (view.ether_type != kEtherTypeVlan) return true;
  if (frame.size() < kEthernetBytes + kVlanTagBytes) return false;
  view.vlan = {true, load_be16(&frame[kEthernetBytes])};
  view.ether_type = load_be16(&frame[kEthernetBytes + kVlanTagBytes - 2]);
  view.payload_at = kEthernetBytes + kVlanTagBytes;
  return true;
}
[[nodiscard]] inline uint32_t ethernet_bytes(const VlanTag& vlan) {
  return vlan.present ? kEthernetBytes + kVlanTagBytes : kEthernetBytes;
}
/// `to` has room for ethernet_bytes(link.vlan) at least.
inline void write_ethernet(uint8_t* to, const LinkHeader& link, uint16_t ether_type) {
  store_mac(to, link.destination);
  store_mac(to + 6, link.source);
  if (link.vlan.present) {
    store_be16(to + kEthernetBytes - 2, kEtherTypeVlan);
    store_be16(to + kEthernetBytes, link.vlan.tci);
  }
  store_be16(to + ethernet_bytes(link.vlan) - 2, ether_type);
}

inline uint16_t checksum_of(std::span<const uint8_t> bytes) {
  return static_cast<uint16_t>(~fold_sum(ones_sum(bytes)));
}
inline bool checksum_is_right(std::span<const uint8_t> bytes) {
  return fold_sum(ones_sum(bytes)) == 0xffff;
}

/// Answers an ICMPv6 echo request whose IPv6 header starts at `ip_at`; see answer_echo.
[[nodiscard]] size_t answer_echo_ipv6(std::span<uint8_t> frame, uint32_t ip_at, const MacAddress& own_mac,
                                      std::span<const Gid> own);

}  // namespace faultline::wire
