// SPDX-License-Identifier: BSD-3-Clause
// A direct link: the order of its first frames, the frames that its receiver refuses, and its end.
#include "pmd_glue/direct/direct_link.hpp"

#include <algorithm>

#include "tests/unit/direct/direct_frames.hpp"
#include "tests/unit/engine/eal_pool.hpp"
#include "tests/unit/engine/virtual_clock.hpp"

namespace faultline::glue::test::direct_link_test {
namespace {

class Links : public WithFrames {
 protected:
  static constexpr uint32_t kOne = 1;
  static constexpr uint32_t kTwo = 2;

  std::unique_ptr<DirectLink> begin(uint32_t own, uint32_t peer, uint32_t side, const OwnInbox& peers) {
    WireAttachment::LinkNews news;
    news.peer = grant_of(peer);
    news.side = side;
    news.memory = UniqueFd(fcntl(memory_.get(), F_DUPFD_CLOEXEC, 0));
    news.inbox = peers.for_peer();
    return DirectLink::begin(std::move(news), own, budget_);
  }
  bool send(DirectLink& link, const Bytes& bytes) {
    rte_mbuf* frame = mbuf_of(pool(), bytes);
    const bool sent = link.transmit({&frame, 1}, dropped_) == 1;
    if (!sent) rte_pktmbuf_free(frame);
    return sent;
  }
  bool send(uint32_t number) { return send(*one_, roce_frame(grant_of(kOne), grant_of(kTwo), number)); }
  std::vector<uint32_t> receive() {
    std::array<rte_mbuf*, 32> burst;
    std::vector<uint32_t> numbers;
    while (const size_t received = two_->receive(pool(), 0, burst))
      for (size_t i = 0; i < received; ++i) numbers.push_back(number_of(take_bytes(burst[i])));
    return numbers;
  }

  VirtualClock clock_;
  KeptBudget budget_{.most_frames = 2 * KeptFrames::kMost};
  UniqueFd memory_ = create_sealed_memory("link", kLinkBytes);
  OwnInbox inbox_1_;
  OwnInbox inbox_2_;
  std::unique_ptr<DirectLink> one_ = begin(kOne, kTwo, 0, inbox_2_);
  std::unique_ptr<DirectLink> two_ = begin(kTwo, kOne, 1, inbox_1_);
  uint64_t dropped_ = 0;
};

TEST_F(Links, HoldTheFirstFramesUntilTheMarkerHasCome) {
  ASSERT_TRUE(one_->takes_frames());
  ASSERT_TRUE(send(1) && send(2));
  EXPECT_TRUE(receive().empty());
  EXPECT_TRUE(two_->waits_for_marker());
  two_->open();
  EXPECT_EQ(receive(), (std::vector<uint32_t>{1, 2}));
  ASSERT_TRUE(send(3));
  EXPECT_EQ(receive(), (std::vector<uint32_t>{3}));
}

TEST_F(Links, DoNotWaitForAMarkerThatWasLost) {
  ASSERT_TRUE(send(1));
  EXPECT_TRUE(receive().empty());
  clock_.advance(DirectLink::kMarkerNs - 1);
  EXPECT_TRUE(receive().empty());
  clock_.advance(1);
  EXPECT_EQ(receive(), (std::vector<uint32_t>{1}));
}

// The receiver checks what the switch checks on its way: source addresses, and who routes management
// datagrams.
TEST_F(Links, EndWithTheFirstFrameThatIsNotThePeers) {
  const SwitchGrant one = grant_of(kOne);
  const SwitchGrant two = grant_of(kTwo);
  const auto falsified = [&](auto change) { return roce_frame(one, two, 9, 77, change); };
  Bytes arp(60, 0);
  arp[12] = 0x08;
  arp[13] = 0x06;
  Bytes runt(10, 0);
  const std::vector<Bytes> wrong{
      falsified([](wire::PathHeader& path) { path.source_mac.bytes[5] ^= 1; }),
      falsified([](wire::PathHeader& path) { path.source_gid = wire::Gid::from_ipv4(0xc6120209); }),
      falsified([](wire::PathHeader& path) {
        path.source_gid = path.destination_gid = wire::link_local_gid(wire::MacAddress{{2, 3, 4, 5, 6, 7}});
      }),
      roce_frame(one, two, 9, wire::kManagementQpn),
      arp,
      runt};
  for (const Bytes& frame : wrong) {
    memory_ = create_sealed_memory("link", kLinkBytes);
    one_ = begin(kOne, kTwo, 0, inbox_2_);
    two_ = begin(kTwo, kOne, 1, inbox_1_);
    two_->open();
    ASSERT_TRUE(send(1) && send(*one_, frame) && send(2));
    EXPECT_EQ(receive(), (std::vector<uint32_t>{1}));
    EXPECT_NE(two_->violation(), nullptr);
    EXPECT_FALSE(two_->takes_frames());
    EXPECT_EQ(receive(), (std::vector<uint32_t>{}));
  }
}

TEST_F(Links, TakeThePeersIpv6PacketsToo) {
  two_->open();
  const auto over_ipv6 = [](wire::PathHeader& path) {
    path.source_gid = wire::link_local_gid(path.source_mac);
    path.destination_gid = wire::link_local_gid(path.destination_mac);
  };
  ASSERT_TRUE(send(*one_, roce_frame(grant_of(kOne), grant_of(kTwo), 5, 77, over_ipv6)));
  EXPECT_EQ(receive(), (std::vector<uint32_t>{5}));
  EXPECT_EQ(two_->violation(), nullptr);
}

// A peer that does not run for a while loses no datagram, and the sender's frames for others go on.
TEST_F(Links, KeepTheFramesOfAPeerThatTakesNone) {
  two_->open();
  uint32_t sent = 0;
  while (send(sent)) ++sent;
  clock_.advance(DirectLink::kStuckNs);
  EXPECT_FALSE(send(1000));
  clock_.advance(1);
  for (uint32_t i = 0; i < 2 * sent; ++i) ASSERT_TRUE(send(sent + i));
  EXPECT_EQ(budget_.kept(), 2 * sent);
  EXPECT_FALSE(one_->flush(dropped_));
  std::vector<uint32_t> received = receive();
  EXPECT_FALSE(one_->flush(dropped_));
  // It follows what is kept.
  EXPECT_TRUE(send(3 * sent));
  for (int i = 0; i < 2; ++i) {
    for (const uint32_t number : receive()) received.push_back(number);
    EXPECT_EQ(one_->flush(dropped_), i == 1);
  }
  for (const uint32_t number : receive()) received.push_back(number);
  ASSERT_EQ(received.size(), 3 * sent + 1);
  EXPECT_TRUE(std::ranges::is_sorted(received));
  EXPECT_EQ(dropped_, 0U);
  EXPECT_EQ(budget_.kept(), 0U);
}

TEST_F(Links, KeepNoMoreFramesThanTheBudget) {
  two_->open();
  uint32_t sent = 0;
  while (send(sent)) ++sent;
  clock_.advance(DirectLink::kStuckNs + 1);
  budget_.most_frames = 3;
  for (uint32_t i = 0; i < 5; ++i) EXPECT_TRUE(send(sent + i));
  EXPECT_EQ(dropped_, 2U);
  EXPECT_EQ(receive().size(), sent);
  EXPECT_TRUE(one_->flush(dropped_));
  EXPECT_EQ(receive(), (std::vector<uint32_t>{sent, sent + 1, sent + 2}));
  EXPECT_EQ(budget_.kept(), 0U);
}

TEST_F(Links, DropTheFramesOfAPeerThatStaysStopped) {
  two_->open();
  uint32_t sent = 0;
  while (send(sent)) ++sent;
  clock_.advance(DirectLink::kStuckNs + 1);
  EXPECT_TRUE(send(1000) && send(1001));
  clock_.advance(DirectLink::kKeptNs);
  EXPECT_TRUE(one_->flush(dropped_));
  EXPECT_EQ(dropped_, 2U);
  EXPECT_TRUE(send(1002));
  EXPECT_EQ(dropped_, 3U);
  EXPECT_EQ(budget_.kept(), 0U);
  EXPECT_EQ(receive().size(), sent);
  // It takes frames again.
  EXPECT_TRUE(send(1003));
  EXPECT_EQ(receive(), (std::vector<uint32_t>{1003}));
  EXPECT_EQ(dropped_, 3U);
}

TEST_F(Links, LoseTheKeptFramesOfAPeerThatHasEnded) {
  two_->open();
  uint32_t sent = 0;
  while (send(sent)) ++sent;
  clock_.advance(DirectLink::kStuckNs + 1);
  EXPECT_TRUE(send(1000));
  one_->end();
  EXPECT_TRUE(one_->flush(dropped_));
  EXPECT_EQ(dropped_, 1U);
  EXPECT_EQ(budget_.kept(), 0U);
}

TEST_F(Links, DeliverTheLastWordsOfAPeerThatHasEnded) {
  two_->open();
  ASSERT_TRUE(send(1) && send(2));
  two_->end();
  EXPECT_FALSE(two_->takes_frames());
  EXPECT_FALSE(two_->is_drained());
  EXPECT_EQ(receive(), (std::vector<uint32_t>{1, 2}));
  EXPECT_TRUE(two_->is_drained());
}

TEST_F(Links, CloseWhenBothEndsAgreeAndNothingIsOnItsWay) {
  two_->open();
  ASSERT_TRUE(send(1));
  EXPECT_FALSE(one_->close());
  EXPECT_FALSE(one_->takes_frames());
  EXPECT_FALSE(two_->close());  // a frame waits
  EXPECT_EQ(receive(), (std::vector<uint32_t>{1}));
  EXPECT_TRUE(two_->close());
  EXPECT_TRUE(one_->close());
}

TEST_F(Links, KnowSinceWhenNothingHasMoved) {
  two_->open();
  const TimeNs begun = 1'000;
  EXPECT_EQ(two_->idle_since(begun), begun);
  EXPECT_EQ(two_->idle_since(begun + 10), begun);
  ASSERT_TRUE(send(1));
  EXPECT_EQ(receive().size(), 1U);
  EXPECT_EQ(two_->idle_since(begun + 20), begun + 20);
  EXPECT_EQ(two_->idle_since(begun + 30), begun + 20);
}

}  // namespace
}  // namespace faultline::glue::test::direct_link_test
