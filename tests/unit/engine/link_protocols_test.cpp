// SPDX-License-Identifier: BSD-3-Clause
// The engine's own frames: replies to ARP, neighbour discovery and ICMP echo, and its own requests.
#include <algorithm>

#include "tests/unit/engine/frames.hpp"

namespace faultline::glue::test::link_protocols_test {
namespace {

class LinkProtocols : public WithFrames {
 protected:
  /// Delivers a frame, runs a turn, and returns what the station sent.
  std::vector<Frame> answers(const Frame& frame) {
    station.port.deliver(frame);
    station.turn();
    return station.port.take_sent();
  }
  /// Delivers `count` echo requests at once, and returns the number of replies.
  size_t echo_replies(size_t count) {
    for (size_t i = 0; i < count; ++i) station.port.deliver(echo_request(station));
    while (station.port.waiting() != 0) station.turn();
    return station.port.take_sent().size();
  }

  Station station{"198.18.0.1/24"};
};

TEST_F(LinkProtocols, AnArpRequestForTheDevicesAddressIsAnswered) {
  const std::vector<Frame> sent = answers(arp_request(station.gid().ipv4()));
  ASSERT_EQ(sent.size(), 1U);
  wire::ArpPacket reply;
  ASSERT_TRUE(wire::parse_arp(sent[0], reply));
  EXPECT_EQ(reply.operation, wire::ArpOperation::reply);
  EXPECT_EQ(reply.sender_mac, station.mac());
  EXPECT_EQ(reply.sender_ip, station.gid().ipv4());
  EXPECT_EQ(reply.target_mac, kPeerMac);
  EXPECT_EQ(station.count(&PortCounts::arp_in), 1U);
  EXPECT_EQ(station.count(&PortCounts::arp_out), 1U);

  EXPECT_TRUE(answers(arp_request(0xc6120007)).empty()) << "for another address";
  EXPECT_EQ(station.count(&PortCounts::arp_in), 2U);
  EXPECT_EQ(station.count(&PortCounts::arp_out), 1U);
}

TEST_F(LinkProtocols, ANeighbourSolicitationForTheLinkLocalAddressIsAnswered) {
  const wire::Gid link_local = station.gid(1);
  const std::vector<Frame> sent = answers(solicitation(link_local));
  ASSERT_EQ(sent.size(), 1U);
  wire::NeighbourMessage reply;
  ASSERT_TRUE(wire::parse_neighbour_message(sent[0], reply));
  EXPECT_EQ(reply.kind, wire::NeighbourMessageKind::advertisement);
  EXPECT_EQ(reply.target, link_local);
  EXPECT_EQ(reply.link_address, station.mac());
  EXPECT_EQ(reply.destination, kPeerIpv6);
  EXPECT_EQ(station.count(&PortCounts::nd_in), 1U);
  EXPECT_EQ(station.count(&PortCounts::nd_out), 1U);
}

TEST_F(LinkProtocols, AnEchoRequestIsAnsweredAndADamagedOneIsNot) {
  const std::vector<Frame> sent = answers(echo_request(station));
  ASSERT_EQ(sent.size(), 1U);
  constexpr size_t kIcmpTypeAt = 34;
  EXPECT_EQ(sent[0][kIcmpTypeAt], 0) << "echo reply (RFC 792)";
  EXPECT_TRUE(std::equal(kPeerMac.bytes.begin(), kPeerMac.bytes.end(), sent[0].begin()));
  EXPECT_EQ(station.count(&PortCounts::icmp_in), 1U);
  EXPECT_EQ(station.count(&PortCounts::icmp_out), 1U);

  Frame damaged = echo_request(station);
  damaged.back() ^= 1;
  EXPECT_TRUE(answers(damaged).empty());
  EXPECT_EQ(station.count(&PortCounts::other_dropped), 1U);
}

TEST_F(LinkProtocols, AFloodOfEchoRequestsIsAnsweredAThousandTimesASecond) {
  EXPECT_EQ(echo_replies(1'500), 1'000U);
  EXPECT_EQ(echo_replies(10), 0U);
  VirtualClock::advance(5 * kMillisecond);
  EXPECT_EQ(echo_replies(10), 5U);
  EXPECT_EQ(station.count(&PortCounts::icmp_in), 1'520U);
}

TEST_F(LinkProtocols, AFloodOfArpRequestsIsAnsweredTenThousandTimesASecond) {
  size_t replies = 0;
  for (int i = 0; i < 1'200; ++i) replies += answers(arp_request(station.gid().ipv4())).size();
  EXPECT_EQ(replies, 1'000U);
  VirtualClock::advance(kMillisecond);
  replies = 0;
  for (int i = 0; i < 20; ++i) replies += answers(arp_request(station.gid().ipv4())).size();
  EXPECT_EQ(replies, 10U);
}

TEST_F(LinkProtocols, RequestsForASilentNeighbourRepeatAtTheirTimesAndEndAfterTenSeconds) {
  const wire::Gid neighbour = wire::Gid::from_ipv4(kPeerIp);
  const TimeNs begin = VirtualClock::now();
  station.engine.neighbours().resolve(neighbour, begin);
  std::vector<TimeNs> asked_ms;
  while (station.engine.next_deadline() != kNever) {
    const TimeNs deadline = station.engine.next_deadline();
    if (deadline > VirtualClock::now()) {  // the first request is due at once
      VirtualClock::advance_to(deadline - 1);
      station.turn();
      ASSERT_TRUE(station.port.take_sent().empty()) << "a request before its time";
    }
    VirtualClock::advance_to(deadline);
    station.turn();
    for (const Frame& frame : station.port.take_sent()) {
      wire::ArpPacket request;
      ASSERT_TRUE(wire::parse_arp(frame, request));
      EXPECT_EQ(request.target_ip, kPeerIp);
      asked_ms.push_back((VirtualClock::now() - begin) / kMillisecond);
    }
  }
  EXPECT_EQ(asked_ms, (std::vector<TimeNs>{0, 20, 70, 170, 500, 1'000, 2'000, 3'000, 4'000, 5'000, 6'000,
                                           7'000, 8'000, 9'000}));
  EXPECT_EQ(station.count(&PortCounts::arp_out), asked_ms.size());
  EXPECT_EQ(VirtualClock::now() - begin, 10 * kSecond);
  wire::MacAddress mac;
  EXPECT_EQ(station.engine.neighbours().lookup(neighbour, VirtualClock::now(), mac), NeighbourState::failed);
}

TEST_F(LinkProtocols, TwoStationsResolveEachOtherWithOneRequest) {
  Station other("198.18.0.2/24");
  station.engine.neighbours().resolve(other.gid(), VirtualClock::now());
  settle(station, other);
  wire::MacAddress mac;
  EXPECT_EQ(station.engine.neighbours().lookup(other.gid(), VirtualClock::now(), mac),
            NeighbourState::reachable);
  EXPECT_EQ(mac, other.mac());
  EXPECT_EQ(other.engine.neighbours().lookup(station.gid(), VirtualClock::now(), mac),
            NeighbourState::reachable)
      << "learnt from the request (RFC 826)";
  EXPECT_EQ(station.count(&PortCounts::arp_out), 1U);
  EXPECT_EQ(other.count(&PortCounts::arp_out), 1U);
  EXPECT_EQ(station.engine.next_deadline(), kNever);
}

TEST_F(LinkProtocols, AnIpv6NeighbourIsRequestedByNeighbourDiscovery) {
  station.engine.neighbours().resolve(kPeerIpv6, VirtualClock::now());
  station.turn();
  const std::vector<Frame> sent = station.port.take_sent();
  ASSERT_EQ(sent.size(), 1U);
  wire::NeighbourMessage request;
  ASSERT_TRUE(wire::parse_neighbour_message(sent[0], request));
  EXPECT_EQ(request.kind, wire::NeighbourMessageKind::solicitation);
  EXPECT_EQ(request.target, kPeerIpv6);
  EXPECT_EQ(station.count(&PortCounts::nd_out), 1U);
  EXPECT_EQ(station.count(&PortCounts::arp_out), 0U);
}

}  // namespace
}  // namespace faultline::glue::test::link_protocols_test
