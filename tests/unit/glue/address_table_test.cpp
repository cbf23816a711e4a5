// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/link/address_table.hpp"

#include <array>

#include <gtest/gtest.h>

namespace faultline::glue::address_table_test {
namespace {

constexpr wire::MacAddress kMac{{0x02, 0x46, 198, 18, 0, 1}};

wire::Gid ip(const std::string& text) {
  return parse_address(text)->gid;
}

class Addresses : public testing::Test {
 protected:
  const std::array<IpNetwork, 3> addresses{*parse_address("198.18.0.1/24"), *parse_address("198.19.7.1/20"),
                                           *parse_address("2001:2::1/64")};
  const std::array<Route, 3> routes{Route{*parse_network("198.19.0.0/16"), ip("198.18.0.253")},
                                    Route{*parse_network("203.0.113.0/24"), ip("198.18.0.254")},
                                    Route{*parse_network("::/0"), ip("fe80::1")}};
  const AddressTable table{kMac, {}, addresses, routes};
};

TEST_F(Addresses, AreTheConfiguredOnesAndTheLinkLocalOne) {
  ASSERT_EQ(table.gids().size(), 4U);
  EXPECT_EQ(table.gids()[0], ip("198.18.0.1"));
  EXPECT_EQ(table.gids()[2], ip("2001:2::1"));
  EXPECT_EQ(table.gids()[3], wire::link_local_gid(kMac));
  for (const wire::Gid& gid : table.gids()) EXPECT_TRUE(table.is_own(gid));
  EXPECT_FALSE(table.is_own(ip("198.18.0.2")));
  const std::array<IpNetwork, 1> just_link_local{IpNetwork{wire::link_local_gid(kMac), 64}};
  EXPECT_EQ(AddressTable(kMac, {}, just_link_local, {}).gids().size(), 1U);
}

TEST_F(Addresses, NextHopIsTheLongestPrefix) {
  EXPECT_EQ(table.next_hop(ip("198.18.0.77")), ip("198.18.0.77"));
  EXPECT_EQ(table.next_hop(ip("198.19.15.9")), ip("198.19.15.9")) << "on the /20";
  EXPECT_EQ(table.next_hop(ip("198.19.16.9")), ip("198.18.0.253")) << "beyond it, in the /16";
  EXPECT_EQ(table.next_hop(ip("203.0.113.9")), ip("198.18.0.254"));
  EXPECT_EQ(table.next_hop(ip("203.0.114.9")), std::nullopt) << "IPv4 has no default route";
  EXPECT_EQ(table.next_hop(ip("2001:2::9")), ip("2001:2::9"));
  EXPECT_EQ(table.next_hop(ip("2001:db8::9")), ip("fe80::1"));
  EXPECT_EQ(table.next_hop(ip("fe80::9")), ip("fe80::9")) << "never by a router";
}

TEST_F(Addresses, AnAddressWithoutAPrefixHasAllOfItsFamilyOnTheLink) {
  const std::array<IpNetwork, 1> one{*parse_address("198.18.0.1")};
  const AddressTable plain(kMac, {}, one, {});
  EXPECT_EQ(plain.next_hop(ip("203.0.113.9")), ip("203.0.113.9"));
  EXPECT_EQ(plain.next_hop(ip("2001:2::9")), std::nullopt);
  const std::array<Route, 1> gateway{Route{*parse_network("0.0.0.0/0"), ip("198.18.0.254")}};
  EXPECT_EQ(AddressTable(kMac, {}, one, gateway).next_hop(ip("203.0.113.9")), ip("198.18.0.254"));
}

TEST_F(Addresses, SourceIsTheNearestOfTheFamily) {
  EXPECT_EQ(table.source_for(ip("198.19.3.3")), ip("198.19.7.1"));
  EXPECT_EQ(table.source_for(ip("203.0.113.9")), ip("198.18.0.1"));
  EXPECT_EQ(table.source_for(ip("2001:2::9")), ip("2001:2::1"));
  EXPECT_EQ(table.source_for(ip("fe80::1")), wire::link_local_gid(kMac));
  const std::array<IpNetwork, 1> ipv6{*parse_address("2001:2::1/64")};
  EXPECT_EQ(AddressTable(kMac, {}, ipv6, {}).source_for(ip("198.18.0.1")), std::nullopt);
}

TEST(ParseNetwork, CountsBitsOfTheGid) {
  EXPECT_EQ(parse_network("198.19.0.0/16")->prefix_bits, 96 + 16);
  EXPECT_EQ(parse_network("0.0.0.0/0")->prefix_bits, 96);
  EXPECT_EQ(parse_network("::/0")->prefix_bits, 0);
  EXPECT_FALSE(parse_network("::/0")->contains(ip("198.18.0.1")));
  EXPECT_TRUE(parse_network("2001:2::/31")->contains(ip("2001:3::1")));
  EXPECT_FALSE(parse_network("2001:2::/32")->contains(ip("2001:3::1")));
  for (const char* wrong :
       {"198.19.0.0", "198.19.0.0/33", "198.19.0.0/", "::/129", "x/1", "::ffff:1.2.3.4/96"})
    EXPECT_EQ(parse_network(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace faultline::glue::address_table_test
