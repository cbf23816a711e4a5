// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/link/address_filter.hpp"

#include <algorithm>
#include <cassert>

#include "stack/wire/link/link_layout.hpp"

namespace faultline::wire {
namespace {

/// Destination address of a frame that classify called roce: its headers up to UDP are complete.
Gid destination_of(std::span<const uint8_t> frame, const EthernetView& ethernet) {
  const uint8_t* ip = &frame[ethernet.payload_at];
  if (ethernet.ether_type == kEtherTypeIpv6) return load_ipv6(ip + kIpv6DestinationAt);
  return Gid::from_ipv4(load_be32(ip + kIpv4DestinationAt));
}

}  // namespace

AddressFilter::AddressFilter(const MacAddress& mac, const VlanTag& vlan, std::span<const Gid> own)
    : mac_(mac_word(mac.bytes.data())),
      vlan_id_(vlan.present ? static_cast<uint16_t>(vlan.tci & kVlanIdMask) : uint16_t{0}) {
  assert(own.size() <= kMaxOwn);
  for (const Gid& gid : own) {
    if (gid.is_ipv4())
      own_ipv4_[own_ipv4_count_++] = gid.ipv4();
    else
      own_ipv6_[own_ipv6_count_++] = gid;
  }
  set_common_case(mac);
}

void AddressFilter::set_common_case(const MacAddress& mac) {
  constexpr uint32_t kUdpPortAt = kEthernetBytes + kIpv4Bytes + kUdpDestinationPortAt;
  static_assert(kCommonIpAt + sizeof(__m128i) == kUdpPortAt + sizeof(uint16_t));
  std::array<uint8_t, kUdpPortAt + sizeof(uint16_t)> frame{};
  std::array<uint8_t, frame.size()> mask{};
  const auto expect = [&](uint32_t at, std::span<const uint8_t> bytes) {
    std::copy(bytes.begin(), bytes.end(), frame.begin() + at);
    std::fill_n(mask.begin() + at, bytes.size(), uint8_t{0xff});
  };
  std::array<uint8_t, 4> field;
  expect(0, mac.bytes);
  store_be16(field.data(), kEtherTypeIpv4);
  expect(kEthernetBytes - 2, std::span(field).first<2>());
  expect(kEthernetBytes, std::array{kIpv4VersionAndLength});
  expect(kEthernetBytes + kIpv4ProtocolAt, std::array{kProtocolUdp});
  store_be32(field.data(), own_ipv4_[0]);
  expect(kEthernetBytes + kIpv4DestinationAt, field);
  store_be16(field.data(), kRoceUdpPort);
  expect(kUdpPortAt, std::span(field).first<2>());
  // Without such frames: no byte below a mask of zeros has ones.
  if (vlan_id_ != 0 || own_ipv4_count_ == 0) frame[kEthernetBytes + kIpv4TosAt] = 0xff;
  const auto blocks_of = [](const auto& bytes) {
    CommonBlocks blocks;
    std::copy_n(bytes.begin(), sizeof(__m128i), blocks.begin());
    std::copy_n(bytes.begin() + kCommonIpAt, sizeof(__m128i), blocks.begin() + sizeof(__m128i));
    return blocks;
  };
  common_ = blocks_of(frame);
  common_mask_ = blocks_of(mask);
}

bool AddressFilter::is_own_ipv4(uint32_t address) const {
  for (size_t i = 0; i < own_ipv4_count_; ++i)
    if (own_ipv4_[i] == address) return true;
  return false;
}

bool AddressFilter::is_own_ipv6(const uint8_t* address) const {
  for (size_t i = 0; i < own_ipv6_count_; ++i)
    if (std::memcmp(own_ipv6_[i].bytes.data(), address, sizeof own_ipv6_[i].bytes) == 0) return true;
  return false;
}

bool AddressFilter::is_joined(const Gid& group) const {
  const auto end = groups_.begin() + static_cast<ptrdiff_t>(group_count_);
  return std::find(groups_.begin(), end, group) != end;
}

Admission AddressFilter::admit(std::span<const uint8_t> frame, FrameKind kind) const {
  EthernetView ethernet;
  if (!read_ethernet(frame, ethernet)) return Admission::wrong_address;
  const uint16_t vlan_id = ethernet.vlan.present ? ethernet.vlan.tci & kVlanIdMask : 0;
  if (vlan_id != vlan_id_) return Admission::wrong_vlan;
  const bool multicast = (frame[0] & 1U) != 0;
  if (!multicast && mac_word(frame.data()) != mac_) return Admission::wrong_address;
  if (kind != FrameKind::roce) return Admission::accepted;
  bool known = false;
  if (multicast) {
    known = is_joined(destination_of(frame, ethernet));
  } else {
    const uint8_t* ip = &frame[ethernet.payload_at];
    known = ethernet.ether_type == kEtherTypeIpv6 ? is_own_ipv6(ip + kIpv6DestinationAt)
                                                  : is_own_ipv4(load_be32(ip + kIpv4DestinationAt));
  }
  return known ? Admission::accepted : Admission::wrong_address;
}

bool AddressFilter::join(const Gid& group) {
  if (is_joined(group)) return true;
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
  return (frame[0] & 1U) != 0 && is_joined(destination_of(frame, ethernet));
}

}  // namespace faultline::wire
