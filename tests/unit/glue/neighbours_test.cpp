// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/neighbours.hpp"

#include <array>

#include <gtest/gtest.h>

namespace faultline::glue {
namespace {

using wire::ArpOperation;
using wire::ArpPacket;

constexpr wire::MacAddress kOwnMac{{0x02, 0x46, 198, 18, 0, 1}};
constexpr wire::MacAddress kPeerMac{{0x02, 0x46, 198, 18, 0, 2}};
constexpr wire::MacAddress kOtherMac{{0x02, 0x46, 198, 18, 0, 3}};
constexpr uint32_t kOwnIp = 0xc6120001;
constexpr uint32_t kPeerIp = 0xc6120002;
constexpr uint32_t kOtherIp = 0xc6120003;
constexpr transport::TimeNs kSecond = 1'000'000'000;

class Neighbours : public testing::Test {
 protected:
  size_t give(const ArpPacket& packet, transport::TimeNs now) {
    std::array<uint8_t, 64> frame{};
    const size_t length = wire::build_arp(frame, packet, wire::kBroadcastMac);
    return cache.on_arp({frame.data(), length}, now, reply);
  }
  NeighbourState state_of(uint32_t ip, transport::TimeNs now) { return cache.lookup(ip, now, mac); }

  NeighbourCache cache{kOwnMac, kOwnIp};
  std::array<uint8_t, 64> reply{};
  wire::MacAddress mac;
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
  // RFC 5227: a probe of our address is answered, and its sender 0.0.0.0 not learnt.
  EXPECT_NE(give({ArpOperation::request, kOtherMac, 0, {}, kOwnIp}, 0), 0U);
  EXPECT_EQ(state_of(0, 1), NeighbourState::absent);
}

TEST_F(Neighbours, AsksAtOnceAndTakesTheAnswer) {
  EXPECT_EQ(cache.next_deadline(), transport::kNever);
  cache.resolve(kPeerIp, 100);
  EXPECT_EQ(state_of(kPeerIp, 100), NeighbourState::incomplete);
  ASSERT_NE(cache.poll(100, reply), 0U);
  ArpPacket question;
  ASSERT_TRUE(wire::parse_arp(reply, question));
  EXPECT_EQ(question.operation, ArpOperation::request);
  EXPECT_EQ(question.target_ip, kPeerIp);
  EXPECT_EQ(question.sender_mac, kOwnMac);
  EXPECT_EQ(cache.poll(100, reply), 0U);
  EXPECT_GT(cache.next_deadline(), 100U);

  static_cast<void>(give({ArpOperation::reply, kPeerMac, kPeerIp, kOwnMac, kOwnIp}, 200));
  EXPECT_EQ(state_of(kPeerIp, 200), NeighbourState::reachable);
  EXPECT_EQ(mac, kPeerMac);
  EXPECT_EQ(cache.next_deadline(), transport::kNever);
}

TEST_F(Neighbours, GivesUpAfterItsRequestsAndTriesAgainWhenAsked) {
  cache.resolve(kPeerIp, 0);
  int requests = 0;
  transport::TimeNs now = 0;
  while (cache.next_deadline() != transport::kNever) {
    now = cache.next_deadline();
    if (cache.poll(now, reply) != 0) ++requests;
  }
  EXPECT_EQ(requests, 8);
  EXPECT_GE(now, 4 * kSecond);
  EXPECT_LE(now, 6 * kSecond);
  EXPECT_EQ(state_of(kPeerIp, now), NeighbourState::failed);
  cache.resolve(kPeerIp, now);
  EXPECT_EQ(state_of(kPeerIp, now), NeighbourState::incomplete);
  EXPECT_NE(cache.poll(now, reply), 0U);
}

TEST_F(Neighbours, ForgetsWhatIsOld) {
  static_cast<void>(give({ArpOperation::request, kPeerMac, kPeerIp, {}, kOwnIp}, 0));
  EXPECT_EQ(state_of(kPeerIp, NeighbourCache::kReachableNs), NeighbourState::reachable);
  EXPECT_EQ(state_of(kPeerIp, NeighbourCache::kReachableNs + 1), NeighbourState::absent);
  cache.resolve(kPeerIp, NeighbourCache::kReachableNs + 1);
  EXPECT_NE(cache.poll(NeighbourCache::kReachableNs + 1, reply), 0U);
}

TEST_F(Neighbours, FollowsAnAddressThatMoves) {
  static_cast<void>(give({ArpOperation::request, kPeerMac, kPeerIp, {}, kOwnIp}, 0));
  static_cast<void>(give({ArpOperation::request, kOtherMac, kPeerIp, {}, kPeerIp}, 1));  // gratuitous
  EXPECT_EQ(state_of(kPeerIp, 2), NeighbourState::reachable);
  EXPECT_EQ(mac, kOtherMac);
}

TEST_F(Neighbours, AFloodOfAskersDoesNotPushOutWhatIsBeingAsked) {
  cache.resolve(kPeerIp, 0);
  for (uint32_t i = 0; i < 4 * NeighbourCache::kEntries; ++i)
    static_cast<void>(give({ArpOperation::request, kOtherMac, kOtherIp + 1 + i, {}, kOwnIp}, 1 + i));
  EXPECT_EQ(state_of(kPeerIp, 2000), NeighbourState::incomplete);
}

}  // namespace
}  // namespace faultline::glue
