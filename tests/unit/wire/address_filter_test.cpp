// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/link/address_filter.hpp"

#include <array>

#include <gtest/gtest.h>

#include "stack/wire/link/steering.hpp"
#include "tests/unit/wire/meaning.hpp"
#include "tests/unit/wire/reference_packet.hpp"

namespace faultline::wire::test::address_filter_test {
namespace {

constexpr uint32_t kGroupIp = 0xe0010203;
const Gid kGroup = Gid::from_ipv4(kGroupIp);

Frame roce_frame(PathHeader path) {
  return build(path, sample_fields(Opcode::rc_send_only), sample_payload(64));
}

class Filter : public testing::TestWithParam<bool> {
 protected:
  const PathHeader path = GetParam() ? ipv6_path() : ipv4_path();
  const std::array<Gid, 2> own{Gid::from_ipv4(0xc6120909), path.destination_gid};
  AddressFilter filter{path.destination_mac, {}, own};
  static Admission admit(const AddressFilter& by, const Frame& frame) {
    return by.admit(frame, classify(frame));
  }
};
INSTANTIATE_TEST_SUITE_P(Families, Filter, testing::Bool());

TEST_P(Filter, TakesOnlyFramesToItsAddresses) {
  EXPECT_EQ(admit(filter, roce_frame(path)), Admission::accepted);
  PathHeader other_mac = path;
  other_mac.destination_mac.bytes[5] ^= 1;
  EXPECT_EQ(admit(filter, roce_frame(other_mac)), Admission::wrong_address);
  PathHeader other_ip = path;
  other_ip.destination_gid.bytes[15] ^= 1;
  EXPECT_EQ(admit(filter, roce_frame(other_ip)), Admission::wrong_address);
  EXPECT_EQ(filter.admit({}, FrameKind::other), Admission::wrong_address);
}

/// The data path's fast check accepts only what the two exact functions accept, for any single flipped header
/// bit and any frame length.
TEST_P(Filter, TakesAtAGlanceOnlyWhatIsItsOwn) {
  const std::array<Gid, 1> first{path.destination_gid};
  const AddressFilter one(path.destination_mac, {}, first);
  const Frame plain = roce_frame(path);
  EXPECT_EQ(one.is_common_case(plain), path.destination_gid.is_ipv4());
  size_t taken = 0;
  const auto examine = [&](std::span<const uint8_t> frame) {
    if (!one.is_common_case(frame)) return;
    ++taken;
    EXPECT_EQ(classify(frame), FrameKind::roce);
    EXPECT_EQ(one.admit(frame, FrameKind::roce), Admission::accepted);
  };
  for (size_t bit = 0; bit < 8 * 70; ++bit) {
    Frame changed = plain;
    changed[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    examine(changed);
  }
  for (size_t length = 0; length <= plain.size(); ++length) examine({plain.data(), length});
  EXPECT_EQ(taken != 0, path.destination_gid.is_ipv4());

  const AddressFilter in_vlan(path.destination_mac, {true, vlan_tci(100, 0)}, first);
  EXPECT_FALSE(in_vlan.is_common_case(plain));
  EXPECT_FALSE(AddressFilter(path.destination_mac, {}, {}).is_common_case(plain));
}

TEST_P(Filter, TakesOnlyItsVlan) {
  const AddressFilter in_vlan(path.destination_mac, {true, vlan_tci(100, 0)}, own);
  PathHeader tagged = path;
  tagged.has_vlan = true;
  tagged.vlan_tci = vlan_tci(100, 5);
  EXPECT_EQ(admit(in_vlan, roce_frame(tagged)), Admission::accepted);
  EXPECT_EQ(admit(filter, roce_frame(tagged)), Admission::wrong_vlan);
  EXPECT_EQ(admit(in_vlan, roce_frame(path)), Admission::wrong_vlan);
  tagged.vlan_tci = vlan_tci(101, 5);
  EXPECT_EQ(admit(in_vlan, roce_frame(tagged)), Admission::wrong_vlan);
  tagged.vlan_tci = vlan_tci(0, 5);  // a priority and no VLAN
  EXPECT_EQ(admit(filter, roce_frame(tagged)), Admission::accepted);
  EXPECT_EQ(admit(in_vlan, roce_frame(tagged)), Admission::wrong_vlan);
}

TEST_P(Filter, TakesGroupsWhileItIsInThem) {
  PathHeader to_group = path;
  to_group.destination_gid =
      GetParam() ? Gid{{0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2}} : kGroup;
  to_group.destination_mac = multicast_mac(to_group.destination_gid);
  const Frame frame = roce_frame(to_group);
  EXPECT_EQ(admit(filter, frame), Admission::wrong_address);
  EXPECT_FALSE(filter.to_joined_group(frame));
  ASSERT_TRUE(filter.join(to_group.destination_gid));
  ASSERT_TRUE(filter.join(to_group.destination_gid));
  EXPECT_EQ(admit(filter, frame), Admission::accepted);
  EXPECT_TRUE(filter.to_joined_group(frame));
  EXPECT_FALSE(filter.to_joined_group(roce_frame(path)));
  filter.leave(to_group.destination_gid);
  EXPECT_EQ(admit(filter, frame), Admission::wrong_address);
  EXPECT_FALSE(filter.any_group());
}

TEST_P(Filter, AGroupAddressAtOneLayerAloneIsNobodys) {
  ASSERT_TRUE(filter.join(kGroup));
  PathHeader unicast_ip = path;
  unicast_ip.destination_mac = kBroadcastMac;
  EXPECT_EQ(admit(filter, roce_frame(unicast_ip)), Admission::wrong_address);
  PathHeader unicast_mac = ipv4_path();
  unicast_mac.destination_mac = path.destination_mac;
  unicast_mac.destination_gid = kGroup;
  EXPECT_EQ(admit(filter, roce_frame(unicast_mac)), Admission::wrong_address);
}

TEST_P(Filter, HoldsSoManyGroupsAndNoMore) {
  for (uint32_t i = 0; i < AddressFilter::kMaxGroups; ++i)
    ASSERT_TRUE(filter.join(Gid::from_ipv4(kGroupIp + i)));
  EXPECT_FALSE(filter.join(Gid::from_ipv4(kGroupIp + AddressFilter::kMaxGroups)));
  filter.leave(Gid::from_ipv4(kGroupIp + 5));
  EXPECT_TRUE(filter.join(Gid::from_ipv4(kGroupIp + AddressFilter::kMaxGroups)));
}

TEST_P(Filter, SteersByTheDestinationQpn) {
  PacketFields fields = sample_fields(Opcode::rc_send_only);
  fields.bth.destination_qpn = 0x123456;
  for (const PathHeader& one : {path, with_vlan(path)}) {
    const Frame frame = build(one, fields, sample_payload(64));
    EXPECT_EQ(peek_destination_qpn(frame), 0x123456U);
    const size_t up_to_bth = (one.has_vlan ? 18U : 14U) + (GetParam() ? 40U : 20U) + 8 + 12;
    for (size_t bytes = 0; bytes < up_to_bth; ++bytes)
      EXPECT_EQ(peek_destination_qpn({frame.data(), bytes}), kMulticastQpn);
  }
}

}  // namespace
}  // namespace faultline::wire::test::address_filter_test
