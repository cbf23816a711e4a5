// SPDX-License-Identifier: BSD-3-Clause
// The attachments of a local network, and the delivery of frames.
#include "apps/switch/stations.hpp"

#include <algorithm>
#include <cerrno>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/frame.hpp"

namespace faultline::switching::stations_test {
namespace {

using glue::SwitchGrant;
using glue::SwitchRequest;
using wire::CmAttribute;
using wire::Gid;
using wire::MacAddress;
using Frame = std::vector<uint8_t>;

constexpr uint32_t kSideA = 0xc6120001;
constexpr uint32_t kSideB = 0xc6120002;
constexpr MacAddress kStranger{{0x02, 1, 2, 3, 4, 5}};

class Stations : public testing::Test {
 protected:
  SwitchGrant attach(PortIndex port, uint32_t ipv4 = 0, bool shared = false, uint32_t range = 0) {
    SwitchGrant grant;
    std::string why;
    EXPECT_EQ(table.attach(port, request(ipv4, shared, range), 1000 + port, grant, why), 0) << why;
    return grant;
  }

  std::string refused(PortIndex port, uint32_t ipv4, bool shared, int error) {
    SwitchGrant unused;
    return refused(port, ipv4, shared, error, unused);
  }
  std::string refused(PortIndex port, uint32_t ipv4, bool shared, int error, SwitchGrant& grant) {
    std::string why;
    EXPECT_EQ(table.attach(port, request(ipv4, shared), 1000 + port, grant, why), error);
    return why;
  }

  static SwitchRequest request(uint32_t ipv4, bool shared, uint32_t range = 0) {
    SwitchRequest wanted;
    wanted.ipv4 = ipv4;
    wanted.shared = shared ? 1 : 0;
    wanted.range = range;
    return wanted;
  }

  static Frame roce(const SwitchGrant& from, const MacAddress& to_mac, const Gid& to, uint32_t qpn,
                    std::span<const uint8_t> payload = {}) {
    wire::PathHeader path;
    path.source_mac.bytes = from.mac;
    path.destination_mac = to_mac;
    path.source_gid = Gid::from_ipv4(from.ipv4);
    path.destination_gid = to;
    const wire::FrameTemplate made(path);
    wire::PacketFields fields;
    fields.bth.opcode = wire::Opcode::ud_send_only;
    fields.bth.destination_qpn = qpn;
    const auto bytes = static_cast<uint32_t>(payload.size());
    Frame frame(made.frame_bytes(fields.bth.opcode, bytes));
    uint8_t* at = made.write_headers(frame, fields, bytes);
    std::copy(payload.begin(), payload.end(), at);
    made.seal(frame, fields.bth.opcode, bytes);
    return frame;
  }
  static Frame roce(const SwitchGrant& from, const SwitchGrant& to, uint32_t qpn,
                    std::span<const uint8_t> payload = {}) {
    return roce(from, {to.mac}, Gid::from_ipv4(to.ipv4), qpn, payload);
  }

  /// Builds a message of the communication management class (IBA 12.6): attribute, the word at byte 4 of its
  /// data, and the next two.
  static Frame message(const SwitchGrant& from, const SwitchGrant& to, CmAttribute attribute, uint32_t first,
                       uint32_t remote_id, uint64_t service_id) {
    wire::MadBytes mad;
    const auto data = wire::write_cm_header(mad, attribute, 1);
    wire::store_be32(&data[0], first);
    wire::store_be32(&data[4], remote_id);
    wire::store_be64(&data[8], service_id);
    return roce(from, to, wire::kManagementQpn, mad);
  }

  static Frame arp_request(const SwitchGrant& from, uint32_t target) {
    Frame frame(wire::kMinFrameBytes);
    EXPECT_NE(wire::build_arp(frame, {wire::ArpOperation::request, {from.mac}, from.ipv4, {}, target},
                              wire::kBroadcastMac),
              0U);
    return frame;
  }

  void expect_to(const Frame& frame, PortIndex from, std::initializer_list<PortIndex> ports) {
    PortSet wanted;
    for (const PortIndex port : ports) wanted.set(port);
    const Verdict verdict = table.decide(frame, from);
    EXPECT_EQ(verdict.to, wanted);
    EXPECT_FALSE(verdict.answer);
  }
  void expect_dropped(const Frame& frame, PortIndex from, Drop why) {
    const Verdict verdict = table.decide(frame, from);
    EXPECT_TRUE(verdict.to.none());
    EXPECT_FALSE(verdict.answer);
    EXPECT_EQ(verdict.drop, why) << name_of(verdict.drop);
  }

  StationTable table;
};

// ---- attachments ----

TEST_F(Stations, GetsAddressesOfItsOwn) {
  const SwitchGrant one = attach(0);
  const SwitchGrant two = attach(1);
  EXPECT_NE(one.ipv4, two.ipv4);
  EXPECT_NE(one.mac, two.mac);
  EXPECT_EQ(one.ipv4 >> 16, 0xc612U);
  EXPECT_EQ(one.prefix_bits, 15U);
  EXPECT_EQ(one.shared, 0U);
}

TEST_F(Stations, TwoSidesOfAWire) {
  EXPECT_EQ(attach(0, kSideA).ipv4, kSideA);
  EXPECT_EQ(attach(1, kSideB).ipv4, kSideB);
  EXPECT_EQ(refused(2, kSideA, false, EADDRINUSE),
            "198.18.0.1 is taken by process 1000: start both with --share to have it twice");
  EXPECT_EQ(refused(2, kSideA, true, EADDRINUSE),
            "198.18.0.1 is taken by process 1000, which does not share it: start it with --share too");
  table.detach(0);
  EXPECT_EQ(attach(2, kSideA).ipv4, kSideA);
}

TEST_F(Stations, ATakenAddressIsDescribedToOneWhoLooks) {
  const SwitchGrant holders = attach(0, kSideA);
  SwitchGrant seen;
  refused(1, kSideA, false, EADDRINUSE, seen);
  EXPECT_EQ(seen.ipv4, kSideA);
  EXPECT_EQ(seen.mac, holders.mac);
  EXPECT_EQ(seen.prefix_bits, holders.prefix_bits);
  EXPECT_EQ(seen.range, 0U);
  SwitchGrant sharers;
  refused(1, kSideA, true, EADDRINUSE, sharers);
  EXPECT_EQ(sharers.ipv4, 0U) << "its ranges come with a seat alone";
}

TEST_F(Stations, NoAddressOfAnotherNetwork) {
  for (const uint32_t ipv4 : {0x0a000001U, 0xc6140001U, 0xc6120000U, 0xc613ffffU})
    EXPECT_NE(refused(0, ipv4, false, EADDRNOTAVAIL).find("is not an address of 198.18.0.0/15"),
              std::string::npos);
}

TEST_F(Stations, GivesARangeAgainAsLateAsPossible) {
  const uint32_t first = attach(0, 0, true).range;
  table.detach(0);
  for (uint32_t i = 1; i < glue::kLastRange; ++i) {
    EXPECT_NE(attach(0, 0, true).range, first);
    table.detach(0);
  }
  EXPECT_EQ(attach(0, 0, true).range, first);
}

// Only sharers of an address divide the QPNs: as many others as there are seats have them all.
TEST_F(Stations, AThousandProcessesHaveAddressesOfTheirOwn) {
  table.begin_at(0xc613ff00);  // near the last address: the next ones are the first
  std::set<uint32_t> addresses;
  for (PortIndex port = 0; port < glue::kMostSeats; ++port) addresses.insert(attach(port).ipv4);
  EXPECT_EQ(addresses.size(), glue::kMostSeats);
  EXPECT_TRUE(addresses.contains(0xc613fffe) && addresses.contains(0xc6120101));
  for (const uint32_t ipv4 : addresses) EXPECT_TRUE((ipv4 & 0xfffe0000) == 0xc6120000 && ipv4 >= 0xc6120101);
}

TEST_F(Stations, OneSharerMoreThanThereAreRangesIsRefused) {
  std::set<uint32_t> ranges;
  for (PortIndex port = 0; port < glue::kLastRange; ++port) ranges.insert(attach(port, 0, true).range);
  EXPECT_EQ(ranges.size(), glue::kLastRange);
  EXPECT_NE(refused(100, 0, true, ENOSPC).find("62 processes share addresses"), std::string::npos);
  attach(101);
  table.detach(7);
  EXPECT_EQ(attach(100, 0, true).range, 8U);
}

TEST_F(Stations, GivesBackTheRangeThatAProcessHad) {
  EXPECT_EQ(attach(0, kSideA, true, 17).range, 17U);
  // The range is in use now.
  EXPECT_NE(attach(1, kSideA, true, 17).range, 17U);
  EXPECT_NE(attach(2, kSideA, true, 0xffffffff).range, 17U);
}

TEST_F(Stations, SharersHaveOneAddressAndRangesThatDoNotMeet) {
  const SwitchGrant one = attach(0, 0, true);
  const SwitchGrant two = attach(1, 0, true);
  EXPECT_EQ(one.ipv4, two.ipv4);
  EXPECT_EQ(one.mac, two.mac);
  EXPECT_TRUE(one.last_qpn() < two.first_qpn() || two.last_qpn() < one.first_qpn());
  EXPECT_NE(one.communication_id_base(), two.communication_id_base());
  EXPECT_EQ(one.communication_id_base() & one.communication_id_mask(), 0U);
  EXPECT_EQ(refused(2, one.ipv4, false, EADDRINUSE),
            "198.18.0.255 is taken by process 1000, which shares it: start this one with --share too");
}

// ---- one process per address ----

TEST_F(Stations, GoesWhereTheAddressIs) {
  const SwitchGrant a = attach(0, kSideA);
  const SwitchGrant b = attach(1, kSideB);
  attach(2);
  expect_to(roce(a, b, 0x10000), 0, {1});
  expect_to(roce(b, a, 1), 1, {0});
  expect_dropped(roce(a, a, 0x10000), 0, Drop::own_address);
  expect_dropped(roce(a, kStranger, Gid::from_ipv4(0xc6120909), 0x10000), 0, Drop::unknown_address);
  // A frame with a forged source address is dropped.
  expect_dropped(roce(a, b, 0x10000), 2, Drop::foreign_source);
  expect_dropped(roce(a, b, 0x10000), 5, Drop::foreign_source);
  expect_dropped(Frame(13), 0, Drop::runt);
  table.detach(1);
  expect_dropped(roce(a, b, 0x10000), 0, Drop::unknown_address);
  expect_dropped(roce(b, a, 0x10000), 1, Drop::foreign_source);
}

TEST_F(Stations, AnswersArpForAll) {
  const SwitchGrant a = attach(0, kSideA);
  const SwitchGrant b = attach(1, kSideB);
  const Frame question = arp_request(a, kSideB);
  EXPECT_TRUE(table.decide(question, 0).answer);
  Frame reply(wire::kMaxLinkFrameBytes);
  reply.resize(table.answer(question, 0, reply));
  wire::ArpPacket packet;
  ASSERT_TRUE(wire::parse_arp(reply, packet));
  EXPECT_EQ(packet.operation, wire::ArpOperation::reply);
  EXPECT_EQ(packet.sender_ip, kSideB);
  EXPECT_EQ(packet.sender_mac.bytes, b.mac);
  EXPECT_EQ(packet.target_ip, kSideA);
  expect_dropped(arp_request(a, 0xc6120303), 0, Drop::unknown_address);
}

TEST_F(Stations, AnswersNeighbourSolicitationsForAll) {
  const SwitchGrant a = attach(0, kSideA);
  const SwitchGrant b = attach(1, kSideB);
  wire::NeighbourMessage question;
  question.source = wire::link_local_gid({a.mac});
  question.target = wire::link_local_gid({b.mac});
  question.destination = wire::solicited_node_group(question.target);
  question.has_link_address = true;
  question.link_address = {a.mac};
  Frame frame(wire::kMaxLinkFrameBytes);
  frame.resize(wire::build_neighbour_message(frame, question,
                                             {{a.mac}, wire::multicast_mac(question.destination), {}}));
  EXPECT_TRUE(table.decide(frame, 0).answer);
  Frame reply(wire::kMaxLinkFrameBytes);
  reply.resize(table.answer(frame, 0, reply));
  wire::NeighbourMessage message;
  ASSERT_TRUE(wire::parse_neighbour_message(reply, message));
  EXPECT_EQ(message.kind, wire::NeighbourMessageKind::advertisement);
  EXPECT_EQ(message.target, question.target);
  EXPECT_EQ(message.link_address.bytes, b.mac);
}

TEST_F(Stations, AGroupsFramesGoToThoseWhoJoined) {
  const Gid group = Gid::from_ipv4(0xe0010203);
  const SwitchGrant a = attach(0, kSideA);
  attach(1, kSideB);
  attach(2);
  const Frame frame = roce(a, wire::multicast_mac(group), group, wire::kMulticastQpn);
  expect_dropped(frame, 0, Drop::no_listener);
  for (PortIndex port = 0; port < 3; ++port) EXPECT_EQ(table.join(port, group), 0);
  expect_to(frame, 0, {1, 2});
  table.leave(1, group);
  expect_to(frame, 0, {2});
  table.detach(2);
  expect_dropped(frame, 0, Drop::no_listener);
}

// ---- an attachment uses only its addresses ----

TEST_F(Stations, AFrameHasItsSendersIpAddress) {
  const SwitchGrant a = attach(0, kSideA);
  const SwitchGrant b = attach(1, kSideB);
  SwitchGrant forged = a;
  forged.ipv4 = 0xc6120003;
  expect_to(roce(a, b, 0x10000), 0, {1});
  expect_dropped(roce(forged, b, 0x10000), 0, Drop::foreign_address);
  // Nor the address of another attachment, nor in a packet that is not RoCEv2.
  forged.ipv4 = kSideB;
  expect_dropped(roce(forged, b, 0x10000), 0, Drop::foreign_address);
  Frame plain(64);
  std::copy(b.mac.begin(), b.mac.end(), plain.begin());
  std::copy(a.mac.begin(), a.mac.end(), plain.begin() + 6);
  plain[12] = 0x08;
  wire::store_be32(&plain[14 + 12], kSideB);
  expect_dropped(plain, 0, Drop::foreign_address);
  wire::store_be32(&plain[14 + 12], kSideA);
  expect_to(plain, 0, {1});
  // An IP packet without a complete header has no address.
  plain.resize(20);
  expect_dropped(plain, 0, Drop::foreign_address);
}

TEST_F(Stations, ALinkLocalPacketHasItsSendersAddress) {
  const SwitchGrant a = attach(0, kSideA);
  const SwitchGrant b = attach(1, kSideB);
  const auto from = [&](const MacAddress& address) {
    wire::PathHeader path;
    path.source_mac.bytes = a.mac;
    path.destination_mac.bytes = b.mac;
    path.source_gid = wire::link_local_gid(address);
    path.destination_gid = wire::link_local_gid({b.mac});
    const wire::FrameTemplate made(path);
    wire::PacketFields fields;
    fields.bth.opcode = wire::Opcode::ud_send_only;
    Frame frame(made.frame_bytes(fields.bth.opcode, 0));
    static_cast<void>(made.write_headers(frame, fields, 0));
    made.seal(frame, fields.bth.opcode, 0);
    return frame;
  };
  expect_to(from({a.mac}), 0, {1});
  expect_dropped(from({b.mac}), 0, Drop::foreign_address);
}

TEST_F(Stations, ArpTellsOfItsSenderAlone) {
  const SwitchGrant a = attach(0, kSideA);
  const SwitchGrant b = attach(1, kSideB);
  const auto reply = [&](const MacAddress& mac, uint32_t ipv4) {
    Frame frame(wire::kMinFrameBytes);
    EXPECT_NE(wire::build_arp(frame, {wire::ArpOperation::reply, mac, ipv4, {b.mac}, b.ipv4}, {b.mac}), 0U);
    std::copy(a.mac.begin(), a.mac.end(), frame.begin() + 6);
    return frame;
  };
  expect_to(reply({a.mac}, kSideA), 0, {1});
  expect_dropped(reply({a.mac}, 0xc6120003), 0, Drop::foreign_address);
  expect_dropped(reply(kStranger, kSideA), 0, Drop::foreign_address);
  SwitchGrant forged = a;
  forged.ipv4 = 0xc6120003;
  expect_dropped(arp_request(forged, kSideB), 0, Drop::foreign_address);
  Frame broken = reply({a.mac}, kSideA);
  broken[14] = 9;  // undefined hardware type
  expect_dropped(broken, 0, Drop::foreign_address);
}

TEST_F(Stations, NeighbourMessagesTellOfTheirSenderAlone) {
  const SwitchGrant a = attach(0, kSideA);
  const SwitchGrant b = attach(1, kSideB);
  const Gid own = wire::link_local_gid({a.mac});
  wire::NeighbourMessage message;
  message.kind = wire::NeighbourMessageKind::advertisement;
  message.source = own;
  message.destination = wire::link_local_gid({b.mac});
  message.target = own;
  message.has_link_address = true;
  message.link_address = {a.mac};
  const auto frame_of = [&](const wire::NeighbourMessage& what) {
    Frame frame(wire::kMaxLinkFrameBytes);
    frame.resize(wire::build_neighbour_message(frame, what, {{a.mac}, {b.mac}, {}}));
    return frame;
  };
  expect_to(frame_of(message), 0, {1});
  wire::NeighbourMessage forged = message;
  forged.target = wire::link_local_gid(kStranger);
  expect_dropped(frame_of(forged), 0, Drop::foreign_address);
  forged = message;
  forged.link_address = kStranger;
  expect_dropped(frame_of(forged), 0, Drop::foreign_address);
  forged = message;
  forged.source = wire::link_local_gid(kStranger);
  expect_dropped(frame_of(forged), 0, Drop::foreign_address);
}

TEST_F(Stations, TheUplinkHasNoAddressOfOurs) {
  constexpr PortIndex kUplink = 0;
  table.set_uplink(kUplink);
  const SwitchGrant a = attach(1, kSideA);
  const SwitchGrant b = attach(2, kSideB);
  SwitchGrant outside;
  outside.mac = kStranger.bytes;
  outside.ipv4 = 0xc6120a0a;
  expect_to(roce(outside, a, 0x10000), kUplink, {1});
  outside.ipv4 = b.ipv4;
  expect_dropped(roce(outside, a, 0x10000), kUplink, Drop::foreign_address);
  expect_dropped(arp_request(outside, kSideA), kUplink, Drop::foreign_address);
}

// ---- limits of claims ----

TEST_F(Stations, ASeatClaimsSoMuchAndNoMore) {
  attach(0, kSideA, true);
  attach(1, kSideA, true);
  for (uint64_t service = 0; service < StationTable::kMostServices; ++service)
    ASSERT_EQ(table.claim_service(0, service), 0);
  EXPECT_EQ(table.claim_service(0, StationTable::kMostServices), ENOMEM);
  // A claim that it already holds does not count again; each attachment has a separate limit.
  EXPECT_EQ(table.claim_service(0, 5), 0);
  EXPECT_EQ(table.claim_service(1, 5), EADDRINUSE);
  EXPECT_EQ(table.claim_service(1, StationTable::kMostServices), 0);
  table.release_service(1, 5);
  table.release_service(0, 5);
  EXPECT_EQ(table.claim_service(0, 5), 0);
  EXPECT_EQ(table.claim_service(0, StationTable::kMostServices + 1), ENOMEM);
  table.detach(0);
  attach(0, kSideA, true);
  EXPECT_EQ(table.claim_service(0, 5), 0);
}

TEST_F(Stations, ASeatJoinsSoManyGroupsAndNoMore) {
  attach(0);
  attach(1);
  const auto group = [](uint32_t number) { return Gid::from_ipv4(0xe0000000 + number); };
  for (uint32_t number = 0; number < StationTable::kMostGroups; ++number)
    ASSERT_EQ(table.join(0, group(number)), 0);
  EXPECT_EQ(table.join(0, group(StationTable::kMostGroups)), ENOMEM);
  EXPECT_EQ(table.join(0, group(5)), 0);
  EXPECT_EQ(table.join(1, group(StationTable::kMostGroups)), 0);
  table.leave(1, group(5));
  table.leave(0, group(5));
  table.leave(0, group(5));
  EXPECT_EQ(table.join(0, group(5)), 0);
  EXPECT_EQ(table.join(0, group(StationTable::kMostGroups + 1)), ENOMEM);
}

// ---- with an uplink ----

TEST_F(Stations, WhatIsForOthersGoesUp) {
  constexpr PortIndex kUplink = 0;
  table.set_uplink(kUplink);
  const SwitchGrant a = attach(1, kSideA);
  const SwitchGrant b = attach(2, kSideB);
  SwitchGrant outside;
  outside.mac = kStranger.bytes;
  outside.ipv4 = 0xc6120a0a;
  expect_to(roce(a, outside, 0x10000), 1, {kUplink});
  expect_to(roce(outside, a, 0x10000), kUplink, {1});
  expect_to(arp_request(a, outside.ipv4), 1, {kUplink});
  EXPECT_TRUE(table.decide(arp_request(outside, kSideB), kUplink).answer);
  expect_to(arp_request(outside, 0xc6120a0b), kUplink, {1, 2});
  // A frame of this network that returns from outside has travelled in a loop.
  expect_dropped(roce(a, b, 0x10000), kUplink, Drop::foreign_source);
  expect_dropped(roce(outside, kStranger, Gid::from_ipv4(0xc6120909), 0x10000), kUplink,
                 Drop::unknown_address);
  const Gid group = Gid::from_ipv4(0xe0010203);
  EXPECT_EQ(table.join(2, group), 0);
  expect_to(roce(a, wire::multicast_mac(group), group, wire::kMulticastQpn), 1, {kUplink, 2});
  expect_to(roce(outside, wire::multicast_mac(group), group, wire::kMulticastQpn), kUplink, {2});
}

// ---- several processes per address ----

class Sharers : public Stations {
 protected:
  const SwitchGrant a = attach(0, kSideA);
  const SwitchGrant one = attach(1, kSideB, true);
  const SwitchGrant two = attach(2, kSideB, true);
};

TEST_F(Sharers, GoByTheRangeOfTheQpn) {
  for (const auto& [grant, port] : {std::pair(one, PortIndex{1}), std::pair(two, PortIndex{2})})
    for (const uint32_t qpn : {grant.first_qpn(), grant.last_qpn()}) {
      expect_to(roce(a, grant, qpn), 0, {port});
      // Sharers also reach each other at the address that they share.
      expect_to(roce(one, grant, qpn), 1, {port});
    }
  const uint32_t nobodys = (glue::kLastRange << glue::kQpnRangeShift) + 5;
  expect_dropped(roce(a, one, nobodys), 0, Drop::unknown_range);
  table.detach(1);
  expect_dropped(roce(a, one, one.first_qpn()), 0, Drop::unknown_range);
  expect_to(roce(a, two, two.first_qpn()), 0, {2});
}

TEST_F(Sharers, RequestsGoToTheListener) {
  constexpr uint64_t kService = 0x0000000001061234;
  EXPECT_EQ(table.claim_service(2, kService), 0);
  EXPECT_EQ(table.claim_service(2, kService), 0);
  EXPECT_EQ(table.claim_service(1, kService), EADDRINUSE);
  for (const CmAttribute attribute : {CmAttribute::req, CmAttribute::sidr_req}) {
    expect_to(message(a, one, attribute, 0x11111111, 0, kService), 0, {2});
    // One process must reject it.
    expect_to(message(a, one, attribute, 0x11111112, 0, kService + 1), 0, {1});
  }
  table.release_service(1, kService);
  expect_to(message(a, one, CmAttribute::req, 0, 0, kService), 0, {2});
  table.release_service(2, kService);
  EXPECT_EQ(table.claim_service(1, kService), 0);
  table.detach(1);
  EXPECT_EQ(table.claim_service(2, kService), 0);
  expect_to(message(a, one, CmAttribute::req, 0, 0, kService), 0, {2});
}

// A process that does not listen may have rejected the request already, so its retransmission must not reach
// the next listener.
TEST_F(Sharers, ARequestThatIsSentAgainGoesToWhoHadIt) {
  constexpr uint64_t kService = 0x0000000001061234;
  for (const CmAttribute attribute : {CmAttribute::req, CmAttribute::sidr_req}) {
    const uint32_t id = attribute == CmAttribute::req ? 0x100 : 0x200;
    expect_to(message(a, one, attribute, id, 0, kService), 0, {1});
    EXPECT_EQ(table.claim_service(2, kService), 0);
    expect_to(message(a, one, attribute, id, 0, kService), 0, {1});
    expect_to(message(a, one, attribute, id + 1, 0, kService), 0, {2});
    table.release_service(2, kService);
    expect_to(message(a, one, attribute, id + 1, 0, kService), 0, {2});
  }
  // The next user of the sender's attachment may number its requests identically.
  EXPECT_EQ(table.claim_service(2, kService), 0);
  expect_to(message(a, one, CmAttribute::req, 0x100, 0, kService), 0, {1});
  table.detach(0);
  attach(0, kSideA);
  expect_to(message(a, one, CmAttribute::req, 0x100, 0, kService), 0, {2});
}

TEST_F(Sharers, AThousandRequestsAtOnceGoToTheSameAgain) {
  constexpr uint64_t kService = 0x0000000001061234;
  const auto send_all = [&] {
    for (uint32_t id = 1; id <= 1000; ++id)
      expect_to(message(a, one, CmAttribute::req, id, 0, kService), 0, {1});
  };
  send_all();
  EXPECT_EQ(table.claim_service(2, kService), 0);
  send_all();
}

TEST_F(Sharers, OtherMessagesGoByTheCommunicationId) {
  const uint32_t id = two.communication_id_base() | 0x12345;
  for (const CmAttribute attribute : {CmAttribute::mra, CmAttribute::rej, CmAttribute::rep, CmAttribute::rtu,
                                      CmAttribute::dreq, CmAttribute::drep})
    expect_to(message(a, one, attribute, 0x11111111, id, 0), 0, {2});
  expect_to(message(a, one, CmAttribute::sidr_rep, one.communication_id_base() | 1, id, 0), 0, {1});
  expect_dropped(message(a, one, CmAttribute::rep, id, 5, 0), 0, Drop::unknown_range);
}

TEST_F(Sharers, ARejectionThatNamesNobodyGoesToAll) {
  expect_to(message(a, one, CmAttribute::rej, 0x11111111, 0, 0), 0, {1, 2});
}

TEST_F(Sharers, OneQuestionHasOneAnswer) {
  EXPECT_TRUE(table.decide(arp_request(a, kSideB), 0).answer);
  Frame unicast = arp_request(a, kSideB);
  std::copy(one.mac.begin(), one.mac.end(), unicast.begin());
  EXPECT_TRUE(table.decide(unicast, 0).answer);
  // The ARP reply is delivered to all sharers, regardless of which one sent the request.
  Frame reply(wire::kMinFrameBytes);
  ASSERT_NE(
      wire::build_arp(reply, {wire::ArpOperation::reply, {a.mac}, a.ipv4, {one.mac}, one.ipv4}, {one.mac}),
      0U);
  expect_to(reply, 0, {1, 2});
  // Any other frame for the address is delivered to one of them.
  Frame other(64);
  std::copy(one.mac.begin(), one.mac.end(), other.begin());
  std::copy(a.mac.begin(), a.mac.end(), other.begin() + 6);
  other[12] = 0x08;
  wire::store_be32(&other[14 + 12], a.ipv4);
  expect_to(other, 0, {1});
  table.detach(1);
  expect_to(other, 0, {2});
}

}  // namespace
}  // namespace faultline::switching::stations_test
