// SPDX-License-Identifier: BSD-3-Clause
// The host's address on the uplink, which programs share with each other and with the kernel.
#include <initializer_list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apps/switch/stations.hpp"
#include "stack/wire/link/neighbour_link.hpp"
#include "stack/wire/packet/frame.hpp"

namespace faultline::switching::host_station_test {
namespace {

using glue::SwitchGrant;
using wire::Gid;
using wire::MacAddress;
using Frame = std::vector<uint8_t>;

constexpr uint32_t kHost = 0x0a000005;  // 10.0.0.5
constexpr uint32_t kPeer = 0x0a000006;
constexpr uint32_t kSideA = 0xc6120001;
constexpr MacAddress kHostMac{{0x02, 1, 2, 3, 4, 5}};
constexpr MacAddress kPeerMac{{0x02, 1, 2, 3, 4, 6}};

class HostStation : public testing::Test {
 protected:
  HostStation() {
    constexpr uint8_t kPrefixBits = 128 - 32 + 24;
    table.set_uplink(kUplinkPort);
    table.set_host({Gid::from_ipv4(kHost), kPrefixBits}, kHostMac);
    table.set_exception(kExceptionPort);
  }

  SwitchGrant attach(PortIndex port, uint32_t ipv4 = 0, bool shared = false) {
    glue::SwitchRequest request;
    request.ipv4 = ipv4;
    request.shared = shared ? 1 : 0;
    SwitchGrant grant;
    std::string why;
    EXPECT_EQ(table.attach(port, request, 1000 + port, grant, why), 0) << why;
    return grant;
  }

  static Frame roce(const MacAddress& from_mac, uint32_t from, const MacAddress& to_mac, uint32_t to,
                    uint32_t qpn) {
    wire::PathHeader path;
    path.source_mac = from_mac;
    path.destination_mac = to_mac;
    path.source_gid = Gid::from_ipv4(from);
    path.destination_gid = Gid::from_ipv4(to);
    const wire::FrameTemplate made(path);
    wire::PacketFields fields;
    fields.bth.opcode = wire::Opcode::ud_send_only;
    fields.bth.destination_qpn = qpn;
    Frame frame(made.frame_bytes(fields.bth.opcode, 0));
    static_cast<void>(made.write_headers(frame, fields, 0));
    made.seal(frame, fields.bth.opcode, 0);
    return frame;
  }
  /// As roce(), with another UDP port.
  static Frame datagram(const MacAddress& from_mac, uint32_t from, const MacAddress& to_mac, uint32_t to) {
    constexpr size_t kUdpDestinationAt = 14 + 20 + 2;
    Frame frame = roce(from_mac, from, to_mac, to, 0);
    frame[kUdpDestinationAt] ^= 0x40;
    return frame;
  }
  static Frame arp(wire::ArpOperation operation, const MacAddress& from_mac, uint32_t from, uint32_t target,
                   const MacAddress& to_mac) {
    Frame frame(wire::kMinFrameBytes);
    EXPECT_NE(wire::build_arp(frame, {operation, from_mac, from, {}, target}, to_mac), 0U);
    return frame;
  }

  void expect_to(const Frame& frame, PortIndex from, std::initializer_list<PortIndex> ports) {
    PortSet wanted;
    for (const PortIndex port : ports) wanted.set(port);
    const Verdict verdict = table.decide(frame, from);
    EXPECT_EQ(verdict.to, wanted) << name_of(verdict.drop);
    EXPECT_FALSE(verdict.answer);
  }
  void expect_dropped(const Frame& frame, PortIndex from, Drop why) {
    const Verdict verdict = table.decide(frame, from);
    EXPECT_TRUE(verdict.to.none());
    EXPECT_EQ(verdict.drop, why) << name_of(verdict.drop);
  }

  StationTable table;
};

TEST_F(HostStation, ProgramsGetTheHostsAddressInRangesOfTheirOwn) {
  const SwitchGrant one = attach(1);
  const SwitchGrant two = attach(2, kHost);
  const SwitchGrant three = attach(3, 0, true);
  for (const SwitchGrant& grant : {one, two, three}) {
    EXPECT_EQ(grant.ipv4, kHost);
    EXPECT_EQ(grant.prefix_bits, 24U);
    EXPECT_EQ(grant.shared, 1U);
    EXPECT_EQ(grant.mac, kHostMac.bytes);
  }
  EXPECT_NE(one.range, two.range);
  EXPECT_EQ(attach(4, kSideA).ipv4, kSideA);
  // The address stays when the last program has left.
  for (PortIndex port = 1; port <= 3; ++port) table.detach(port);
  expect_dropped(roce(kPeerMac, kPeer, kHostMac, kHost, one.first_qpn()), kUplinkPort, Drop::unknown_range);
  expect_dropped(roce(kPeerMac, kPeer, kHostMac, kHost, wire::kManagementQpn), kUplinkPort,
                 Drop::unknown_range);
  EXPECT_EQ(attach(1).ipv4, kHost);
}

TEST_F(HostStation, PacketsGoToTheProgramOfTheRange) {
  const SwitchGrant one = attach(1);
  const SwitchGrant two = attach(2);
  expect_to(roce(kPeerMac, kPeer, kHostMac, kHost, one.first_qpn()), kUplinkPort, {1});
  expect_to(roce(kPeerMac, kPeer, kHostMac, kHost, two.last_qpn()), kUplinkPort, {2});
  expect_to(roce(kHostMac, kHost, kPeerMac, kPeer, 0x10000), 1, {kUplinkPort});
  expect_to(roce(kHostMac, kHost, kHostMac, kHost, two.first_qpn()), 1, {2});
}

TEST_F(HostStation, TheRestGoesToTheKernel) {
  attach(1);
  expect_to(datagram(kPeerMac, kPeer, kHostMac, kHost), kUplinkPort, {kExceptionPort});
  expect_to(datagram(kHostMac, kHost, kPeerMac, kPeer), kExceptionPort, {kUplinkPort});
  // Another address of the kernel, also for RoCEv2.
  expect_to(roce(kPeerMac, kPeer, kHostMac, kHost + 100, 0x10000), kUplinkPort, {kExceptionPort});
  expect_to(datagram(kHostMac, kHost + 100, kPeerMac, kPeer), kExceptionPort, {kUplinkPort});
}

TEST_F(HostStation, TheKernelAnswersForTheAddress) {
  attach(1);
  attach(2);
  const auto request = wire::ArpOperation::request;
  const auto reply = wire::ArpOperation::reply;
  expect_to(arp(request, kPeerMac, kPeer, kHost, wire::kBroadcastMac), kUplinkPort, {kExceptionPort});
  expect_to(arp(request, kPeerMac, kPeer, kHost, kHostMac), kUplinkPort, {kExceptionPort});
  expect_to(arp(request, kHostMac, kHost, kPeer, wire::kBroadcastMac), kExceptionPort, {kUplinkPort});
  expect_to(arp(request, kHostMac, kHost, kPeer, wire::kBroadcastMac), 1, {kUplinkPort});
  // Any of them may have asked.
  expect_to(arp(reply, kPeerMac, kPeer, kHost, kHostMac), kUplinkPort, {1, 2, kExceptionPort});
}

TEST_F(HostStation, ProgramsSendNothingInTheKernelsName) {
  const SwitchGrant a = attach(1, kSideA);
  attach(2);
  expect_dropped(datagram(kHostMac, kHost, kPeerMac, kPeer), 2, Drop::kernels_own);
  expect_dropped(roce(kHostMac, kHost + 1, kPeerMac, kPeer, 0x10000), 2, Drop::foreign_address);
  expect_dropped(datagram({a.mac}, kHost, kPeerMac, kPeer), 1, Drop::foreign_address);
  expect_dropped(datagram(kHostMac, kHost, kPeerMac, kPeer), kUplinkPort, Drop::foreign_source);
  // Nor does the kernel in that of a program with another address.
  expect_dropped(datagram({a.mac}, kHost, kPeerMac, kPeer), kExceptionPort, Drop::foreign_source);
  expect_dropped(datagram(kHostMac, kSideA, kPeerMac, kPeer), kExceptionPort, Drop::foreign_address);
}

TEST_F(HostStation, TheKernelReachesProgramsOfTheWire) {
  const SwitchGrant a = attach(1, kSideA);
  const Verdict asked = table.decide(
      arp(wire::ArpOperation::request, kHostMac, kHost, kSideA, wire::kBroadcastMac), kExceptionPort);
  EXPECT_TRUE(asked.answer);
  expect_to(datagram(kHostMac, kHost, {a.mac}, kSideA), kExceptionPort, {1});
  expect_to(datagram({a.mac}, kSideA, kHostMac, kHost), 1, {kExceptionPort});
}

}  // namespace
}  // namespace faultline::switching::host_station_test
