// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/link/neighbours.hpp"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

namespace faultline::glue::neighbours_test {
namespace {

using wire::ArpOperation;
using wire::ArpPacket;

constexpr wire::MacAddress kOwnMac{{0x02, 0x46, 198, 18, 0, 1}};
constexpr wire::MacAddress kPeerMac{{0x02, 0x46, 198, 18, 0, 2}};
constexpr wire::MacAddress kOtherMac{{0x02, 0x46, 198, 18, 0, 3}};
constexpr uint32_t kOwnIp = 0xc6120001;
constexpr uint32_t kSecondIp = 0xc6130001;
constexpr uint32_t kPeerIp = 0xc6120002;
constexpr uint32_t kOtherIp = 0xc6120003;
constexpr TimeNs kSecond = 1'000'000'000;

class Neighbours : public testing::Test {
 protected:
  size_t give(const ArpPacket& packet, TimeNs now) {
    std::array<uint8_t, 64> frame{};
    const size_t length = wire::build_arp(frame, packet, wire::kBroadcastMac);
    return cache.on_arp({frame.data(), length}, now, reply);
  }
  NeighbourState state_of(uint32_t ip, TimeNs now) {
    return cache.lookup(wire::Gid::from_ipv4(ip), now, mac);
  }
  size_t poll(TimeNs now) { return cache.poll(now, reply, asked_ipv6); }

  const std::array<IpNetwork, 3> addresses{*parse_address("198.18.0.1/24"), *parse_address("198.19.0.1/16"),
                                           *parse_address("2001:2::1/64")};
  const AddressTable own{kOwnMac, {}, addresses, {}};
  NeighbourCache cache{own};
  std::array<uint8_t, wire::kMaxLinkFrameBytes> reply{};
  wire::MacAddress mac;
  bool asked_ipv6 = false;
};

TEST_F(Neighbours, AnswersOnlyForTheOwnAddress) {
  EXPECT_EQ(give({ArpOperation::request, kPeerMac, kPeerIp, {}, kOtherIp}, 0), 0U);
  ASSERT_NE(give({ArpOperation::request, kPeerMac, kPeerIp, {}, kOwnIp}, 0), 0U);
  ArpPacket answer;
  ASSERT_TRUE(wire::parse_arp(reply, answer));
  EXPECT_EQ(answer.operation, ArpOperation::reply);
  EXPECT_EQ(answer.sender_mac, kOwnMac);
  EXPECT_EQ(answer.sender_ip, kOwnIp);
  EXPECT_EQ(answer.target_mac, kPeerMac);
  EXPECT_EQ(answer.target_ip, kPeerIp);
}

TEST_F(Neighbours, AnswersForEachOfItsAddressesAndAsksFromTheNearest) {
  ASSERT_NE(give({ArpOperation::request, kPeerMac, kPeerIp, {}, kSecondIp}, 0), 0U);
  ArpPacket packet;
  ASSERT_TRUE(wire::parse_arp(reply, packet));
  EXPECT_EQ(packet.sender_ip, kSecondIp);
  cache.resolve(wire::Gid::from_ipv4(kSecondIp + 7), 0);
  ASSERT_NE(poll(0), 0U);
  ASSERT_TRUE(wire::parse_arp(reply, packet));
  EXPECT_EQ(packet.sender_ip, kSecondIp);
  EXPECT_FALSE(asked_ipv6);
}

TEST_F(Neighbours, SpeaksInItsVlan) {
  const AddressTable in_vlan{kOwnMac, {true, wire::vlan_tci(100, 3)}, addresses, {}};
  NeighbourCache tagged{in_vlan};
  for (const char* text : {"198.18.0.9", "2001:2::9"}) {
    tagged.resolve(parse_address(text)->gid, 0);
    ASSERT_NE(tagged.poll(0, reply, asked_ipv6), 0U);
    EXPECT_EQ((reply[12] << 8 | reply[13]), 0x8100);
    EXPECT_EQ((reply[14] << 8 | reply[15]), 3 << 13 | 100);
  }
}

TEST_F(Neighbours, LearnsWhoAsksAndWhoAnswersAndNobodyElse) {
  static_cast<void>(give({ArpOperation::request, kPeerMac, kPeerIp, {}, kOwnIp}, 0));
  EXPECT_EQ(state_of(kPeerIp, 1), NeighbourState::reachable);
  EXPECT_EQ(mac, kPeerMac);
  static_cast<void>(give({ArpOperation::request, kOtherMac, kOtherIp, {}, kPeerIp}, 0));
  EXPECT_EQ(state_of(kOtherIp, 1), NeighbourState::absent);
  static_cast<void>(give({ArpOperation::reply, kOtherMac, kOtherIp, kOwnMac, kOwnIp}, 0));
  EXPECT_EQ(state_of(kOtherIp, 1), NeighbourState::absent);
}

TEST_F(Neighbours, IgnoresAnImpostorOfTheOwnAddressAndAProbe) {
  EXPECT_EQ(give({ArpOperation::request, kOtherMac, kOwnIp, {}, kOwnIp}, 0), 0U);
  EXPECT_EQ(state_of(kOwnIp, 1), NeighbourState::absent);
  // RFC 5227: a probe of our address is answered, and its sender 0.0.0.0 is not learnt.
  EXPECT_NE(give({ArpOperation::request, kOtherMac, 0, {}, kOwnIp}, 0), 0U);
  EXPECT_EQ(state_of(0, 1), NeighbourState::absent);
}

TEST_F(Neighbours, AsksAtOnceAndTakesTheAnswer) {
  EXPECT_EQ(cache.next_deadline(), kNever);
  cache.resolve(wire::Gid::from_ipv4(kPeerIp), 100);
  EXPECT_EQ(state_of(kPeerIp, 100), NeighbourState::incomplete);
  ASSERT_NE(poll(100), 0U);
  ArpPacket question;
  ASSERT_TRUE(wire::parse_arp(reply, question));
  EXPECT_EQ(question.operation, ArpOperation::request);
  EXPECT_EQ(question.target_ip, kPeerIp);
  EXPECT_EQ(question.sender_mac, kOwnMac);
  EXPECT_EQ(poll(100), 0U);
  EXPECT_GT(cache.next_deadline(), 100U);

  static_cast<void>(give({ArpOperation::reply, kPeerMac, kPeerIp, kOwnMac, kOwnIp}, 200));
  EXPECT_EQ(state_of(kPeerIp, 200), NeighbourState::reachable);
  EXPECT_EQ(mac, kPeerMac);
  EXPECT_EQ(cache.next_deadline(), kNever);
}

TEST_F(Neighbours, GivesUpAfterItsRequestsAndTriesAgainWhenAsked) {
  cache.resolve(wire::Gid::from_ipv4(kPeerIp), 0);
  int requests = 0;
  TimeNs now = 0;
  while (cache.next_deadline() != kNever) {
    now = cache.next_deadline();
    if (poll(now) != 0) ++requests;
  }
  EXPECT_EQ(requests, 14);
  EXPECT_EQ(now, 10 * kSecond);
  EXPECT_EQ(state_of(kPeerIp, now), NeighbourState::failed);
  cache.resolve(wire::Gid::from_ipv4(kPeerIp), now);
  EXPECT_EQ(state_of(kPeerIp, now), NeighbourState::incomplete);
  EXPECT_NE(poll(now), 0U);
}

TEST_F(Neighbours, AskEachSecondSoThatAPeerWhoGetsACpuIsFoundSoon) {
  cache.resolve(wire::Gid::from_ipv4(kPeerIp), 0);
  TimeNs last = 0;
  for (TimeNs now = 0; now < 9 * kSecond; now = cache.next_deadline()) {
    ASSERT_NE(poll(now), 0U);
    EXPECT_LE(now - last, kSecond);
    last = now;
  }
  static_cast<void>(give({ArpOperation::reply, kPeerMac, kPeerIp, kOwnMac, kOwnIp}, 9 * kSecond));
  EXPECT_EQ(state_of(kPeerIp, 9 * kSecond), NeighbourState::reachable);
}

TEST_F(Neighbours, ForgetsWhatIsOld) {
  static_cast<void>(give({ArpOperation::request, kPeerMac, kPeerIp, {}, kOwnIp}, 0));
  EXPECT_EQ(state_of(kPeerIp, NeighbourCache::kReachableNs), NeighbourState::reachable);
  EXPECT_EQ(state_of(kPeerIp, NeighbourCache::kReachableNs + 1), NeighbourState::absent);
  cache.resolve(wire::Gid::from_ipv4(kPeerIp), NeighbourCache::kReachableNs + 1);
  EXPECT_NE(poll(NeighbourCache::kReachableNs + 1), 0U);
}

TEST_F(Neighbours, AskAgainForAnAddressThatExpiresWhileACallerWaits) {
  const wire::Gid peer = wire::Gid::from_ipv4(kPeerIp);
  static_cast<void>(give({ArpOperation::request, kPeerMac, kPeerIp, {}, kOwnIp}, 0));
  bool is_asked = false;
  EXPECT_EQ(cache.wait_for(peer, NeighbourCache::kReachableNs, is_asked, mac), NeighbourState::reachable);
  EXPECT_EQ(mac, kPeerMac);
  // The caller began while the entry was valid; it has expired in its next turn.
  TimeNs now = NeighbourCache::kReachableNs + 1;
  EXPECT_EQ(cache.wait_for(peer, now, is_asked, mac), NeighbourState::incomplete);
  EXPECT_NE(poll(now), 0U);
  while (cache.next_deadline() != kNever) {
    now = cache.next_deadline();
    static_cast<void>(poll(now));
  }
  EXPECT_EQ(cache.wait_for(peer, now, is_asked, mac), NeighbourState::failed);
  is_asked = false;
  EXPECT_EQ(cache.wait_for(peer, now, is_asked, mac), NeighbourState::incomplete);
}

TEST_F(Neighbours, TakesNoAnswerThatNobodyWaitsForOfOneWhomItHasForgotten) {
  static_cast<void>(give({ArpOperation::request, kPeerMac, kPeerIp, {}, kOwnIp}, 0));
  const TimeNs later = NeighbourCache::kReachableNs + 1;
  static_cast<void>(give({ArpOperation::reply, kOtherMac, kPeerIp, kOwnMac, kOwnIp}, later));
  EXPECT_EQ(state_of(kPeerIp, later), NeighbourState::absent);
}

TEST_F(Neighbours, FollowsAnAddressThatMoves) {
  static_cast<void>(give({ArpOperation::request, kPeerMac, kPeerIp, {}, kOwnIp}, 0));
  TimeNs now = NeighbourCache::kBeyondDoubtNs;
  static_cast<void>(give({ArpOperation::request, kOtherMac, kPeerIp, {}, kPeerIp}, now));  // gratuitous
  // The known neighbour is probed first, and the address does not resolve meanwhile.
  for (int questions = 0; questions < 3; ++questions) {
    EXPECT_EQ(state_of(kPeerIp, now), NeighbourState::incomplete);
    now = std::max(now, cache.next_deadline());
    ASSERT_NE(poll(now), 0U);
    EXPECT_TRUE(std::equal(kPeerMac.bytes.begin(), kPeerMac.bytes.end(), reply.begin())) << questions;
  }
  now = cache.next_deadline();
  ASSERT_NE(poll(now), 0U);
  EXPECT_TRUE(std::equal(wire::kBroadcastMac.bytes.begin(), wire::kBroadcastMac.bytes.end(), reply.begin()));
  static_cast<void>(give({ArpOperation::reply, kOtherMac, kPeerIp, kOwnMac, kOwnIp}, now));
  EXPECT_EQ(state_of(kPeerIp, now), NeighbourState::reachable);
  EXPECT_EQ(mac, kOtherMac);
}

TEST_F(Neighbours, BelievesNobodyWhoSaysThatAKnownOneIsElsewhereWhileThatOneAnswers) {
  cache.resolve(wire::Gid::from_ipv4(kPeerIp), 0);
  static_cast<void>(poll(0));
  static_cast<void>(give({ArpOperation::reply, kPeerMac, kPeerIp, kOwnMac, kOwnIp}, 0));
  TimeNs now = 0;
  unsigned questions = 0;
  for (int claims = 0; claims < 1000; ++claims) {
    now += kSecond / 100;
    const auto operation = claims % 2 == 0 ? ArpOperation::reply : ArpOperation::request;
    static_cast<void>(give({operation, kOtherMac, kPeerIp, kOwnMac, kOwnIp}, now));
    if (cache.next_deadline() > now) continue;
    ASSERT_NE(poll(now), 0U);
    ++questions;
    // The claim arrives again before the reply.
    static_cast<void>(give({ArpOperation::reply, kOtherMac, kPeerIp, kOwnMac, kOwnIp}, now));
    static_cast<void>(give({ArpOperation::reply, kPeerMac, kPeerIp, kOwnMac, kOwnIp}, now));
    ASSERT_EQ(state_of(kPeerIp, now), NeighbourState::reachable);
    ASSERT_EQ(mac, kPeerMac);
  }
  EXPECT_GE(questions, 5U);
  EXPECT_LE(questions, 10U) << "one a second";
}

TEST_F(Neighbours, AFloodOfAskersPushesOutNoneThatWasAskedFor) {
  cache.resolve(wire::Gid::from_ipv4(kPeerIp), 0);
  static_cast<void>(poll(0));
  static_cast<void>(give({ArpOperation::reply, kPeerMac, kPeerIp, kOwnMac, kOwnIp}, 0));
  for (uint32_t i = 0; i < 4 * NeighbourCache::kEntries; ++i)
    static_cast<void>(give({ArpOperation::request, kOtherMac, kOtherIp + 1 + i, {}, kOwnIp}, 1 + i));
  EXPECT_EQ(state_of(kPeerIp, 2000), NeighbourState::reachable);
  EXPECT_EQ(mac, kPeerMac);
}

TEST_F(Neighbours, AFloodOfAskersDoesNotPushOutWhatIsBeingAsked) {
  cache.resolve(wire::Gid::from_ipv4(kPeerIp), 0);
  for (uint32_t i = 0; i < 4 * NeighbourCache::kEntries; ++i)
    static_cast<void>(give({ArpOperation::request, kOtherMac, kOtherIp + 1 + i, {}, kOwnIp}, 1 + i));
  EXPECT_EQ(state_of(kPeerIp, 2000), NeighbourState::incomplete);
}

class NeighboursIpv6 : public Neighbours {
 protected:
  const wire::Gid own_ip = parse_address("2001:2::1")->gid;
  const wire::Gid peer = parse_address("2001:2::2")->gid;
  const wire::Gid other = parse_address("2001:2::3")->gid;

  wire::NeighbourMessage solicitation(const wire::Gid& source, const wire::MacAddress& from,
                                      const wire::Gid& target) {
    wire::NeighbourMessage message;
    message.sender_mac = message.link_address = from;
    message.has_link_address = true;
    message.source = source;
    message.target = target;
    message.destination = wire::solicited_node_group(target);
    return message;
  }
  wire::NeighbourMessage advertisement(const wire::Gid& target, const wire::MacAddress& at,
                                       bool override_known) {
    wire::NeighbourMessage message;
    message.kind = wire::NeighbourMessageKind::advertisement;
    message.sender_mac = message.link_address = at;
    message.has_link_address = true;
    message.source = message.target = target;
    message.destination = own_ip;
    message.solicited = true;
    message.override_known = override_known;
    return message;
  }
  size_t give(const wire::NeighbourMessage& message, TimeNs now) {
    return cache.on_neighbour_message(message, now, reply);
  }
  NeighbourState state_of(const wire::Gid& gid, TimeNs now) { return cache.lookup(gid, now, mac); }
};

TEST_F(NeighboursIpv6, AnswersForEachOfItsAddressesAndTheLinkLocalOne) {
  for (const wire::Gid& target : {own_ip, wire::link_local_gid(kOwnMac)}) {
    const size_t length = give(solicitation(peer, kPeerMac, target), 0);
    ASSERT_NE(length, 0U);
    wire::NeighbourMessage answer;
    ASSERT_TRUE(wire::parse_neighbour_message({reply.data(), length}, answer));
    EXPECT_EQ(answer.kind, wire::NeighbourMessageKind::advertisement);
    EXPECT_EQ(answer.target, target);
    EXPECT_EQ(answer.source, target);
    EXPECT_EQ(answer.destination, peer);
    EXPECT_EQ(answer.link_address, kOwnMac);
    EXPECT_TRUE(answer.solicited && answer.override_known);
    EXPECT_TRUE(std::equal(kPeerMac.bytes.begin(), kPeerMac.bytes.end(), reply.begin()));
  }
  EXPECT_EQ(state_of(peer, 1), NeighbourState::reachable);
  EXPECT_EQ(mac, kPeerMac);
  EXPECT_EQ(give(solicitation(peer, kPeerMac, other), 0), 0U);
  wire::NeighbourMessage stray = solicitation(peer, kPeerMac, own_ip);
  stray.destination = other;
  EXPECT_EQ(give(stray, 0), 0U) << "to another node";
}

TEST_F(NeighboursIpv6, AnswersASolicitationWithoutALinkAddressWhereItCameFrom) {
  wire::NeighbourMessage message = solicitation(peer, kPeerMac, own_ip);
  message.destination = own_ip;
  message.has_link_address = false;
  ASSERT_NE(give(message, 0), 0U);
  EXPECT_TRUE(std::equal(kPeerMac.bytes.begin(), kPeerMac.bytes.end(), reply.begin()));
  EXPECT_EQ(state_of(peer, 1), NeighbourState::absent);
}

TEST_F(NeighboursIpv6, DefendsItsAddressBeforeAllNodesAndIgnoresAnImpostor) {
  wire::NeighbourMessage probe = solicitation({}, kOtherMac, own_ip);
  probe.has_link_address = false;
  const size_t length = give(probe, 0);
  ASSERT_NE(length, 0U);
  wire::NeighbourMessage answer;
  ASSERT_TRUE(wire::parse_neighbour_message({reply.data(), length}, answer));
  EXPECT_FALSE(answer.solicited);
  EXPECT_EQ(answer.destination, (wire::Gid{{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}));
  EXPECT_EQ(give(solicitation(own_ip, kOtherMac, own_ip), 0), 0U);
  EXPECT_EQ(give(advertisement(own_ip, kOtherMac, true), 0), 0U);
  EXPECT_EQ(state_of(own_ip, 1), NeighbourState::absent);
}

TEST_F(NeighboursIpv6, AsksTheGroupOfTheTargetFromAnAddressOfItsNetwork) {
  const wire::Gid far_link_local = wire::link_local_gid(kPeerMac);
  for (const auto& [target, source] :
       {std::pair{peer, own_ip}, std::pair{far_link_local, wire::link_local_gid(kOwnMac)}}) {
    cache.resolve(target, 100);
    const size_t length = poll(100);
    ASSERT_NE(length, 0U);
    EXPECT_TRUE(asked_ipv6);
    wire::NeighbourMessage question;
    ASSERT_TRUE(wire::parse_neighbour_message({reply.data(), length}, question));
    EXPECT_EQ(question.kind, wire::NeighbourMessageKind::solicitation);
    EXPECT_EQ(question.target, target);
    EXPECT_EQ(question.source, source);
    EXPECT_EQ(question.destination, wire::solicited_node_group(target));
    EXPECT_EQ(reply[0], 0x33);
    static_cast<void>(give(advertisement(target, kPeerMac, false), 200));
    EXPECT_EQ(state_of(target, 200), NeighbourState::reachable);
    EXPECT_EQ(mac, kPeerMac);
  }
  EXPECT_EQ(cache.next_deadline(), kNever);
}

TEST_F(NeighboursIpv6, TakesAdvertisementsOnlyOfThoseItAskedForAndNewAddressesOnlyWithOverride) {
  static_cast<void>(give(advertisement(peer, kPeerMac, true), 0));
  EXPECT_EQ(state_of(peer, 1), NeighbourState::absent);
  cache.resolve(peer, 1);
  static_cast<void>(give(advertisement(peer, kPeerMac, false), 2));
  static_cast<void>(give(advertisement(peer, kOtherMac, false), 3));
  EXPECT_EQ(state_of(peer, 4), NeighbourState::reachable);
  EXPECT_EQ(mac, kPeerMac);
  // With the override flag the known neighbour is probed by unicast, and then by multicast.
  TimeNs now = 3 + NeighbourCache::kBeyondDoubtNs;
  static_cast<void>(give(advertisement(peer, kOtherMac, true), now));
  for (int questions = 0; questions < 4; ++questions) {
    now = std::max(now, cache.next_deadline());
    ASSERT_NE(poll(now), 0U);
    EXPECT_EQ(reply[0] == 0x33, questions == 3);
  }
  static_cast<void>(give(advertisement(peer, kOtherMac, true), now));
  EXPECT_EQ(state_of(peer, now), NeighbourState::reachable);
  EXPECT_EQ(mac, kOtherMac);
}

TEST_F(NeighboursIpv6, AFloodOfAskersDoesNotPushOutWhatIsBeingAsked) {
  cache.resolve(peer, 0);
  for (uint32_t i = 0; i < 4 * NeighbourCache::kEntries; ++i) {
    wire::Gid asker = other;
    asker.bytes[8] = static_cast<uint8_t>(i >> 8);
    asker.bytes[9] = static_cast<uint8_t>(i);
    static_cast<void>(give(solicitation(asker, kOtherMac, own_ip), 1 + i));
  }
  EXPECT_EQ(state_of(peer, 2000), NeighbourState::incomplete);
}

}  // namespace
}  // namespace faultline::glue::neighbours_test
