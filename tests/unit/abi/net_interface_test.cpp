// SPDX-License-Identifier: BSD-3-Clause
// The network interface of a device that no interface of the host belongs to.
#include "stack/abi/interfaces/net_interface.hpp"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>

namespace faultline::abi {
namespace {

wire::Gid ipv6(std::initializer_list<uint8_t> first, uint8_t last) {
  wire::Gid gid;
  std::copy(first.begin(), first.end(), gid.bytes.begin());
  gid.bytes.back() = last;
  return gid;
}

class NetInterface : public testing::Test {
 protected:
  NetInterface() {
    device_.name = "faultline0";
    device_.mac = {{2, 0x46, 0xc6, 0x12, 0, 1}};
    device_.mtu_bytes = 4500;
    device_.gids = {wire::Gid::from_ipv4(0xc6120001), ipv6({0xfe, 0x80}, 7)};
    device_.prefix_bits = {96 + 15, 64};
    address_.sin_family = AF_INET;
    host_.ifa_name = name_.data();
    host_.ifa_addr = reinterpret_cast<sockaddr*>(&address_);
    port_.state = IBV_PORT_ACTIVE;
    port_.active_width = 2;   // 4 lanes
    port_.active_speed = 32;  // of 25 Gb/s
  }
  void set_host(const std::string& name, uint32_t ipv4) {
    name_ = name;
    host_.ifa_name = name_.data();
    address_.sin_addr.s_addr = htonl(ipv4);
  }

  verbs::DeviceDescription device_;
  ibv_port_attr port_{};
  std::string name_ = "lo";
  sockaddr_in address_{};
  ifaddrs host_{};
};

TEST_F(NetInterface, HasTheAddressesMtuAndState) {
  const auto own = interface_of(device_, 0, port_, &host_);
  ASSERT_TRUE(own);
  EXPECT_EQ(own->name, "wire0");
  EXPECT_EQ(own->device, "faultline0");
  EXPECT_EQ(own->mac, device_.mac);
  EXPECT_EQ(own->mtu_bytes, 4500U);
  ASSERT_EQ(own->addresses.size(), 2U);
  EXPECT_EQ(own->addresses[0].gid, device_.gids[0]);
  EXPECT_EQ(own->addresses[0].prefix_bits, 15);
  EXPECT_EQ(own->addresses[1].prefix_bits, 64);
  EXPECT_EQ(flags_of(*own) & (IFF_UP | IFF_RUNNING), uint32_t{IFF_UP | IFF_RUNNING});
  EXPECT_EQ(own->speed_mbps, 100'000U);
  port_.state = IBV_PORT_DOWN;
  EXPECT_EQ(flags_of(*interface_of(device_, 0, port_, &host_)) & (IFF_UP | IFF_RUNNING), uint32_t{IFF_UP});
}

TEST_F(NetInterface, IsTheHostsWhereThatHasAnAddress) {
  EXPECT_EQ(host_interface_of(device_, &host_), "");
  set_host("eth0", 0xc6120001);
  EXPECT_EQ(host_interface_of(device_, &host_), "eth0");
  EXPECT_FALSE(interface_of(device_, 0, port_, &host_));
}

TEST_F(NetInterface, HasANameThatTheHostLacks) {
  set_host("wire0", 0x0a000001);
  EXPECT_EQ(interface_of(device_, 0, port_, &host_)->name, "wire0_");
  EXPECT_EQ(interface_of(device_, 1, port_, &host_)->name, "wire1");
}

TEST_F(NetInterface, HasAnIndexOfItsOwn) {
  const uint32_t first = interface_of(device_, 0, port_, &host_)->index;
  EXPECT_NE(interface_of(device_, 1, port_, &host_)->index, first);
  device_.gids[0] = wire::Gid::from_ipv4(0xc6130001);  // another program of the wire
  const uint32_t other = interface_of(device_, 0, port_, &host_)->index;
  EXPECT_NE(other, first);
  for (const uint32_t index : {first, other}) EXPECT_GE(index, 0x10000000U);
}

TEST_F(NetInterface, HasARouteToEachNetworkOnce) {
  device_.gids.push_back(wire::Gid::from_ipv4(0xc6120002));  // of the same network
  device_.prefix_bits.push_back(96 + 15);
  device_.routes = {{wire::Gid::from_ipv4(0x0a010203), 96 + 8, wire::Gid::from_ipv4(0xc61200fe)}};
  const auto own = interface_of(device_, 0, port_, &host_);
  ASSERT_EQ(own->routes.size(), 3U);
  EXPECT_EQ(own->routes[0].to, wire::Gid::from_ipv4(0xc6120000));
  EXPECT_EQ(own->routes[0].prefix_bits, 15);
  EXPECT_EQ(own->routes[0].source, device_.gids[0]);
  EXPECT_TRUE(own->routes[0].via.is_zero());
  EXPECT_EQ(own->routes[1].to, ipv6({0xfe, 0x80}, 0));
  EXPECT_EQ(own->routes[2].to, wire::Gid::from_ipv4(0x0a000000));
  EXPECT_EQ(own->routes[2].prefix_bits, 8);
  EXPECT_EQ(own->routes[2].via, wire::Gid::from_ipv4(0xc61200fe));
}

TEST_F(NetInterface, MasksBitsOfEitherFamily) {
  const wire::Gid ipv4 = wire::Gid::from_ipv4(0xffffffff);
  EXPECT_EQ(masked(ipv4, 0), wire::Gid::from_ipv4(0));
  EXPECT_EQ(masked(ipv4, 15), wire::Gid::from_ipv4(0xfffe0000));
  EXPECT_EQ(masked(ipv4, 32), ipv4);
  const wire::Gid six = ipv6({0xff, 0xff, 0xff}, 0xff);
  EXPECT_EQ(masked(six, 0), wire::Gid{});
  EXPECT_EQ(masked(six, 20), ipv6({0xff, 0xff, 0xf0}, 0));
  EXPECT_EQ(masked(six, 128), six);
}

}  // namespace
}  // namespace faultline::abi
