// SPDX-License-Identifier: BSD-3-Clause
// The host's addresses on an uplink by sockets, which programs share with each other and with the kernel.
#include <initializer_list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apps/switch/stations.hpp"
#include "pmd_glue/wires/granted_addresses.hpp"
#include "stack/wire/link/neighbour_link.hpp"
#include "stack/wire/packet/frame.hpp"

namespace faultline::switching::socket_station_test {
namespace {

using glue::IpNetwork;
using glue::SwitchGrant;
using wire::Gid;
using wire::MacAddress;
using Frame = std::vector<uint8_t>;

constexpr uint32_t kSideA = 0xc6120001;
constexpr uint32_t kWindowPackets = 20;
constexpr uint8_t kIpv4PrefixBits = 128 - 32 + 24;
const Gid kHost = Gid::from_ipv4(0x0a000005);
const Gid kPeer = Gid::from_ipv4(0x0a000006);
const Gid kHost6{{0x20, 0x01, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5}};
const Gid kPeer6{{0x20, 0x01, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6}};
const std::vector<IpNetwork> kBoth{{kHost6, 64}, {kHost, kIpv4PrefixBits}};

class SocketStation : public testing::Test {
 protected:
  void use(std::span<const IpNetwork> addresses) {
    table.set_uplink(kUplinkPort);
    mac = glue::mac_of(addresses[0].gid);
    table.set_host_of_sockets(addresses, mac, kWindowPackets);
  }

  SwitchGrant attach(PortIndex port, const glue::SwitchRequest& request = {}) {
    SwitchGrant grant;
    std::string why;
    EXPECT_EQ(table.attach(port, request, 1000 + port, grant, why), 0) << why;
    return grant;
  }
  SwitchGrant attach_side_a(PortIndex port) {
    glue::SwitchRequest request;
    request.ipv4 = kSideA;
    return attach(port, request);
  }

  static Frame roce(const MacAddress& from_mac, const Gid& from, const MacAddress& to_mac, const Gid& to,
                    uint32_t qpn) {
    wire::PathHeader path;
    path.source_mac = from_mac;
    path.destination_mac = to_mac;
    path.source_gid = from;
    path.destination_gid = to;
    const wire::FrameTemplate made(path);
    wire::PacketFields fields;
    fields.bth.opcode = wire::Opcode::ud_send_only;
    fields.bth.destination_qpn = qpn;
    Frame frame(made.frame_bytes(fields.bth.opcode, 0));
    static_cast<void>(made.write_headers(frame, fields, 0));
    made.seal(frame, fields.bth.opcode, 0);
    return frame;
  }
  /// From a host on the other side of the sockets: its MAC address stands for it.
  Frame from_peer(const Gid& peer, const Gid& to, uint32_t qpn) const {
    return roce(glue::mac_of(peer), peer, mac, to, qpn);
  }
  Frame to_peer(const Gid& from, const Gid& peer) const {
    return roce(mac, from, glue::mac_of(peer), peer, 77);
  }
  static Frame arp_request(const MacAddress& from_mac, const Gid& from, const Gid& target) {
    Frame frame(wire::kMinFrameBytes);
    EXPECT_NE(wire::build_arp(frame, {wire::ArpOperation::request, from_mac, from.ipv4(), {}, target.ipv4()},
                              wire::kBroadcastMac),
              0U);
    return frame;
  }

  void expect_to(const Frame& frame, PortIndex from, std::initializer_list<PortIndex> ports) {
    PortSet wanted;
    for (const PortIndex port : ports) wanted.set(port);
    const Verdict verdict = table.decide(frame, from);
    EXPECT_EQ(verdict.to, wanted) << name_of(verdict.drop);
  }
  void expect_dropped(const Frame& frame, PortIndex from, Drop why) {
    const Verdict verdict = table.decide(frame, from);
    EXPECT_TRUE(verdict.to.none());
    EXPECT_EQ(verdict.drop, why) << name_of(verdict.drop);
  }

  StationTable table;
  MacAddress mac;
};

TEST_F(SocketStation, ProgramsGetAllAddressesInTheirOrder) {
  use(kBoth);
  const SwitchGrant one = attach(1);
  table.note_uplink_state(true);
  glue::SwitchRequest by_address;
  by_address.ipv4 = kHost.ipv4();
  const SwitchGrant two = attach(2, by_address);
  for (const SwitchGrant& grant : {one, two}) {
    EXPECT_EQ(glue::addresses_of(grant), kBoth);
    EXPECT_EQ(grant.ipv4, kHost.ipv4());
    EXPECT_EQ(grant.prefix_bits, 24U);
    EXPECT_EQ(grant.mac, glue::mac_of(kHost6).bytes);
    EXPECT_NE(grant.shared, 0U);
    EXPECT_NE(grant.by_sockets, 0U);
    EXPECT_EQ(grant.window_packets, kWindowPackets);
  }
  EXPECT_NE(one.range, two.range);
  EXPECT_EQ(one.uplink_up, 0U);
  EXPECT_NE(two.uplink_up, 0U);
  const SwitchGrant side = attach_side_a(3);
  EXPECT_EQ(side.by_sockets, 0U);
  EXPECT_EQ(glue::addresses_of(side), (std::vector<IpNetwork>{{Gid::from_ipv4(kSideA), 96 + 15}}));
}

TEST_F(SocketStation, AHostMayHaveIpv6Alone) {
  use(std::span(kBoth).first(1));
  const SwitchGrant one = attach(1);
  const SwitchGrant two = attach(2);
  EXPECT_EQ(one.ipv4, 0U);
  EXPECT_NE(one.range, two.range);
  EXPECT_EQ(one.mac, two.mac);
  EXPECT_EQ(glue::addresses_of(two).at(0).gid, kHost6);
  expect_to(from_peer(kPeer6, kHost6, two.first_qpn()), kUplinkPort, {2});
  // As the program asks a new switch.
  glue::SwitchRequest again;
  again.shared = two.shared;
  again.range = two.range;
  again.port = 2;
  table.detach(2);
  EXPECT_EQ(attach(2, again).range, two.range);
}

TEST_F(SocketStation, PacketsOfBothFamiliesReachTheProgramOfTheRange) {
  use(kBoth);
  const SwitchGrant one = attach(1);
  const SwitchGrant two = attach(2);
  expect_to(from_peer(kPeer, kHost, one.first_qpn()), kUplinkPort, {1});
  expect_to(from_peer(kPeer6, kHost6, two.first_qpn()), kUplinkPort, {2});
  expect_to(to_peer(kHost, kPeer), 1, {kUplinkPort});
  expect_to(to_peer(kHost6, kPeer6), 2, {kUplinkPort});
  expect_to(roce(mac, kHost6, mac, kHost6, two.first_qpn()), 1, {2});
  // Nobody sends in the host's name.
  expect_dropped(from_peer(kHost6, kHost6, two.first_qpn()), kUplinkPort, Drop::foreign_source);
  expect_dropped(from_peer(kHost, kHost, two.first_qpn()), kUplinkPort, Drop::foreign_address);
}

// The kernel would send the payload as the host's own.
TEST_F(SocketStation, OnlyPacketsOfTheHostsAddressesGoToTheSockets) {
  use(kBoth);
  attach(1);
  const SwitchGrant side = attach_side_a(2);
  const Gid own = Gid::from_ipv4(kSideA);
  const MacAddress side_mac{side.mac};
  expect_dropped(to_peer(kPeer, kPeer), 1, Drop::foreign_address);
  expect_dropped(to_peer(wire::link_local_gid(mac), kPeer6), 1, Drop::foreign_address);
  expect_dropped(roce(side_mac, own, glue::mac_of(kPeer), kPeer, 77), 2, Drop::not_for_sockets);
  expect_dropped(arp_request(side_mac, own, kPeer), 2, Drop::not_for_sockets);
  expect_dropped(arp_request(mac, kHost, kPeer), 1, Drop::not_for_sockets);
}

TEST_F(SocketStation, GroupsOfTheWireDoNotNeedTheSockets) {
  use(kBoth);
  attach(1);
  const SwitchGrant side = attach_side_a(2);
  const Gid group = Gid::from_ipv4(0xe0000105);
  ASSERT_EQ(table.join(1, group), 0);
  ASSERT_EQ(table.join(2, group), 0);
  const MacAddress group_mac = wire::multicast_mac(group);
  expect_to(roce(mac, kHost, group_mac, group, wire::kMulticastQpn), 1, {2, kUplinkPort});
  expect_to(roce({side.mac}, Gid::from_ipv4(kSideA), group_mac, group, wire::kMulticastQpn), 2, {1});
}

/// Records what an uplink is asked, and refuses one group.
class RecordedGroups final : public OutsideGroups {
 public:
  [[nodiscard]] int join_group(const Gid& group) override {
    if (group == refused) return ENOBUFS;
    joined.push_back(group);
    return 0;
  }
  void leave_group(const Gid& group) override { std::erase(joined, group); }
  std::vector<Gid> joined;
  Gid refused;
};

TEST_F(SocketStation, TheSocketsAreInAGroupWhileAPortIs) {
  RecordedGroups outside;
  table.set_outside_groups(outside);
  use(kBoth);
  attach(1);
  attach(2);
  const Gid group = Gid::from_ipv4(0xe0000105);
  const Gid other = Gid::from_ipv4(0xe0000106);
  for (const PortIndex port : std::vector<PortIndex>{1, 2, 2}) ASSERT_EQ(table.join(port, group), 0);
  ASSERT_EQ(table.join(2, other), 0);
  EXPECT_EQ(outside.joined, (std::vector{group, other}));
  table.leave(1, group);
  EXPECT_EQ(outside.joined, (std::vector{group, other}));
  table.leave(2, other);
  EXPECT_EQ(outside.joined, (std::vector{group}));
  table.detach(2);
  EXPECT_EQ(outside.joined, std::vector<Gid>{});
}

TEST_F(SocketStation, APortIsNotInAGroupThatTheSocketsCannotJoin) {
  RecordedGroups outside;
  outside.refused = Gid::from_ipv4(0xe0000105);
  table.set_outside_groups(outside);
  use(kBoth);
  attach(1);
  EXPECT_EQ(table.join(1, outside.refused), ENOBUFS);
  const MacAddress group_mac = wire::multicast_mac(outside.refused);
  const SwitchGrant side = attach_side_a(2);
  expect_to(roce({side.mac}, Gid::from_ipv4(kSideA), group_mac, outside.refused, wire::kMulticastQpn), 2, {});
}

}  // namespace
}  // namespace faultline::switching::socket_station_test
