// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/address_filter.hpp"

#include <algorithm>
#include <cassert>

#include "stack/wire/link_layout.hpp"

namespace faultline::wire {
namespace {

/// Of a frame that classify called roce: its headers up to UDP's are whole.
Gid destination_of(std::span<const uint8_t> frame, const EthernetView& ethernet) {
  const uint8_t* ip = &frame[ethernet.payload_at];
  if (ethernet.ether_type == kEtherTypeIpv6) return load_ipv6(ip + kIpv6DestinationAt);
  return Gid::from_ipv4(load_be32(ip + kIpv4DestinationAt));
}

}  // namespace

AddressFilter::AddressFilter(const MacAddress& mac, const VlanTag& vlan, std::span<const Gid> own)
    : mac_(mac),
      vlan_id_(vlan.present ? static_cast<uint16_t>(vlan.tci & kVlanIdMask) : uint16_t{0}),
      own_count_(own.size()) {
  assert(own.size() <= kMaxOwn);
  std::copy(own.begin(), own.end(), own_.begin());
}

bool AddressFilter::knows(const Gid& destination, bool multicast) const {
  const std::span<const Gid> known =
      multicast ? std::span(groups_).first(group_count_) : std::span(own_).first(own_count_);
  return std::find(known.begin(), known.end(), destination) != known.end();
}

Admission AddressFilter::admit(std::span<const uint8_t> frame, FrameKind kind) const {
  EthernetView ethernet;
  if (!read_ethernet(frame, ethernet)) return Admission::wrong_address;
  const uint16_t vlan_id = ethernet.vlan.present ? ethernet.vlan.tci & kVlanIdMask : 0;
  if (vlan_id != vlan_id_) return Admission::wrong_vlan;
  const MacAddress to = load_mac(frame.data());
  const bool multicast = is_multicast(to);
  if (!multicast && to != mac_) return Admission::wrong_address;
  if (kind == FrameKind::roce && !knows(destination_of(frame, ethernet), multicast))
    return Admission::wrong_address;
  return Admission::accepted;
}

bool AddressFilter::join(const Gid& group) {
  if (knows(group, true)) return true;
  if (group_count_ == kMaxGroups) return false;
  groups_[group_count_++] = group;
  return true;
}

void AddressFilter::leave(const Gid& group) {
  const auto end = groups_.begin() + static_cast<ptrdiff_t>(group_count_);
  const auto at = std::find(groups_.begin(), end, group);
  if (at == end) return;
  *at = groups_[--group_count_];
}

bool AddressFilter::to_joined_group(std::span<const uint8_t> frame) const {
  EthernetView ethernet;
  if (group_count_ == 0 || !read_ethernet(frame, ethernet)) return false;
  return is_multicast(load_mac(frame.data())) && knows(destination_of(frame, ethernet), true);
}

uint32_t peek_destination_qpn(std::span<const uint8_t> frame) {
  constexpr uint32_t kDestinationAt = 4;
  EthernetView ethernet;
  if (!read_ethernet(frame, ethernet)) return kMulticastQpn;
  const uint32_t ip_bytes = ethernet.ether_type == kEtherTypeIpv6 ? kIpv6Bytes : kIpv4Bytes;
  const uint32_t bth_at = ethernet.payload_at + ip_bytes + kUdpBytes;
  if (frame.size() < bth_at + kBthBytes) return kMulticastQpn;
  return load_be32(&frame[bth_at + kDestinationAt]) & kQpnMask;
}

}  // namespace faultline::wire
