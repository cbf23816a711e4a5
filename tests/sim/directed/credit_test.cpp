// SPDX-License-Identifier: BSD-3-Clause
// End-to-end credits as packet traces: what a requester sends of messages that consume a receive at the peer.
// IBA vol. 1, 9.7.7.2.
#include "stack/wire/packet/credits.hpp"
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::credit_test {
namespace {

/// A first message has advertised the responder's credits to the requester.
struct Credits : ::testing::Test {
  explicit Credits(bool credits = true) {
    SimulationScript script = quiet_fabric();
    script.a.core.credits = script.b.core.credits = credits;
    pair = std::make_unique<Pair>(script);
  }
  void post_receives(int count) {
    for (int i = 0; i < count; ++i) pair->receive(4096);
  }
  void send_first(int receives) {
    post_receives(receives + 1);
    pair->send(100);
    pair->run();
    seen = pair->lines().size();
  }
  [[nodiscard]] Lines new_lines() {
    const Lines all = pair->lines();
    Lines fresh(all.begin() + static_cast<std::ptrdiff_t>(seen), all.end());
    seen = all.size();
    return fresh;
  }

  std::unique_ptr<Pair> pair;
  size_t seen = 0;
};

TEST_F(Credits, NoMoreIsSentThanTheReceivesThatWereTold) {
  send_first(2);
  for (int i = 0; i < 5; ++i) pair->send(100);
  pair->simulation.at(pair->simulation.now() + 500 * kMicrosecond, [&] { post_receives(8); });
  pair->run();
  const Lines lines = new_lines();
  ASSERT_GE(lines.size(), 4U);
  EXPECT_EQ(lines[0], "a> SEND_ONLY 101!");
  EXPECT_EQ(lines[1], "a> SEND_ONLY 102!");
  EXPECT_EQ(lines[2].substr(0, 6), "b> ACK") << "the third waits for the answer to the two";
  EXPECT_EQ(pair->a.poll_sends().size(), 6U);
  // The requester probes the missing receive with one message at a time, not with all posted messages.
  EXPECT_EQ(pair->counters_b().messages_received, 6U);
  EXPECT_EQ(pair->counters_a().retransmitted_packets, pair->counters_b().rnr_naks_sent);
}

TEST_F(Credits, ReceivesThatArePostedAgainAreToldOfUnasked) {
  send_first(0);
  EXPECT_TRUE(new_lines().empty());
  post_receives(3);
  pair->run();
  EXPECT_EQ(new_lines(), Lines{"b> ACK 100"});
  post_receives(3);  // the peer knows of some; the next ACK advertises these
  pair->run();
  EXPECT_TRUE(new_lines().empty());
  for (int i = 0; i < 3; ++i) pair->send(100);
  pair->run();
  EXPECT_EQ(new_lines(),
            (Lines{"a> SEND_ONLY 101!", "a> SEND_ONLY 102!", "a> SEND_ONLY 103!", "b> ACK 103"}));
}

TEST_F(Credits, WritesNeedNone) {
  send_first(0);
  for (int i = 0; i < 3; ++i) pair->write(100);
  pair->run();
  EXPECT_EQ(new_lines(),
            (Lines{"a> WRITE_ONLY 101!", "a> WRITE_ONLY 102!", "a> WRITE_ONLY 103!", "b> ACK 103"}));
}

TEST_F(Credits, ALongMessageHasItsCreditToTheEnd) {
  send_first(1);
  pair->send(3 * 1024);
  pair->run();
  EXPECT_EQ(new_lines(),
            (Lines{"a> SEND_FIRST 101", "a> SEND_MIDDLE 102", "a> SEND_LAST 103!", "b> ACK 103"}));
}

TEST_F(Credits, BeyondThemAMessageStillFindsAReceive) {
  send_first(0);
  // Before the ACK that advertises the receive arrives, the requester probes with one packet, and it is
  // accepted.
  pair->send(3 * 1024);
  post_receives(1);
  pair->run();
  EXPECT_EQ(pair->a.poll_sends().size(), 2U);
  EXPECT_EQ(pair->counters_a().timeouts, 0U);
}

struct NoCredits : Credits {
  NoCredits() : Credits(false) {}
};

TEST_F(NoCredits, AllGoesOutAtOnce) {
  send_first(2);
  for (int i = 0; i < 4; ++i) pair->send(100);
  pair->simulation.at(pair->simulation.now() + 500 * kMicrosecond, [&] { post_receives(8); });
  pair->run();
  const Lines lines = new_lines();
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(lines.at(i).substr(0, 12), "a> SEND_ONLY");
}

TEST(CreditCode, PromisesNoMoreThanThereIs) {
  for (uint32_t receives = 0; receives < 70'000; ++receives) {
    const uint8_t code = wire::credit_code_of(receives);
    ASSERT_LE(wire::kCreditsOfCode[code], receives);
    if (code + 1U < wire::kCreditsOfCode.size()) {
      ASSERT_GT(wire::kCreditsOfCode[code + 1U], receives);
    }
  }
}

}  // namespace
}  // namespace faultline::sim::credit_test
