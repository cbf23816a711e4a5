// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/shared/timer_wheel.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sim/world/random.hpp"

namespace faultline::transport {
namespace {

TEST(TimerWheel, AnEmptyOneHasNoDeadline) {
  TimerWheel wheel;
  EXPECT_EQ(wheel.next_deadline(), kNever);
  EXPECT_EQ(wheel.pop_due(1'000'000'000), nullptr);
}

TEST(TimerWheel, NeverFiresBeforeItsTimeAndAlwaysAtIt) {
  TimerWheel wheel;
  for (const TimeNs deadline : {TimeNs{1}, TimeNs{9'000}, TimeNs{10'000'000}, TimeNs{40'000'000'000}}) {
    TimerNode node;
    wheel.arm(node, deadline, 0);
    EXPECT_TRUE(node.armed());
    EXPECT_EQ(wheel.pop_due(deadline - 1), nullptr) << deadline;
    EXPECT_LE(wheel.next_deadline(), deadline);
    EXPECT_EQ(wheel.pop_due(deadline), &node) << deadline;
    EXPECT_FALSE(node.armed());
    EXPECT_EQ(wheel.next_deadline(), kNever);
    // Time continues from there.
    wheel = TimerWheel();
  }
}

TEST(TimerWheel, TheEarlierDeadlineWins) {
  TimerWheel wheel;
  TimerNode node;
  wheel.arm(node, 500'000, 0);
  wheel.arm(node, 900'000, 0);
  EXPECT_EQ(node.deadline_ns, 500'000U);
  wheel.arm(node, 100'000, 0);
  EXPECT_EQ(node.deadline_ns, 100'000U);
  EXPECT_EQ(wheel.pop_due(100'000), &node);
  EXPECT_EQ(wheel.pop_due(2'000'000), nullptr);
}

TEST(TimerWheel, KNeverArmsNothing) {
  TimerWheel wheel;
  TimerNode node;
  wheel.arm(node, kNever, 0);
  EXPECT_FALSE(node.armed());
}

TEST(TimerWheel, KnowsWithoutALookWhenNothingIsDue) {
  TimerWheel wheel;
  EXPECT_FALSE(wheel.may_be_due(kNever - 1)) << "nothing is armed";
  TimerNode node;
  wheel.arm(node, 100'000, 0);
  EXPECT_FALSE(wheel.may_be_due(50'000));
  EXPECT_TRUE(wheel.may_be_due(100'000));
  EXPECT_EQ(wheel.pop_due(100'000), &node);
}

TEST(TimerWheel, ADisarmedNodeDoesNotFire) {
  TimerWheel wheel;
  TimerNode first, second;
  wheel.arm(first, 50'000, 0);
  wheel.arm(second, 50'000, 0);
  wheel.disarm(first);
  wheel.disarm(first);
  EXPECT_EQ(wheel.pop_due(60'000), &second);
  EXPECT_EQ(wheel.pop_due(60'000), nullptr);
}

TEST(TimerWheel, AgreesWithASortedListOverRandomUse) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    sim::Random random(seed);
    TimerWheel wheel;
    std::vector<std::unique_ptr<TimerNode>> nodes;
    for (int i = 0; i < 40; ++i) nodes.push_back(std::make_unique<TimerNode>());
    TimeNs now = random.below(uint64_t{1} << 40);
    static_cast<void>(wheel.pop_due(now));
    for (int step = 0; step < 400; ++step) {
      TimerNode& node = *nodes[random.below(nodes.size())];
      const uint64_t act = random.below(10);
      const TimeNs span = random.chance(200) ? 3'000'000'000 : random.chance(500) ? 20'000'000 : 50'000;
      if (act < 5) {
        const TimeNs deadline = now + random.below(span);
        const TimeNs expected = node.armed() ? std::min(node.deadline_ns, deadline) : deadline;
        wheel.arm(node, deadline, now);
        ASSERT_EQ(node.deadline_ns, expected);
      } else if (act < 6) {
        wheel.disarm(node);
        ASSERT_FALSE(node.armed());
      } else {
        now += random.below(span);
      }
      TimeNs earliest = kNever;
      size_t due = 0;
      for (const auto& each : nodes) {
        if (!each->armed()) continue;
        earliest = std::min(earliest, each->deadline_ns);
        due += each->deadline_ns <= now ? 1 : 0;
      }
      ASSERT_LE(wheel.next_deadline(), earliest);
      ASSERT_EQ(wheel.next_deadline() == kNever, earliest == kNever);
      for (; due != 0; --due) {
        const TimerNode* fired = wheel.pop_due(now);
        ASSERT_NE(fired, nullptr) << "seed " << seed << " step " << step;
        ASSERT_LE(fired->deadline_ns, now);
        ASSERT_FALSE(fired->armed());
      }
      ASSERT_EQ(wheel.pop_due(now), nullptr);
    }
  }
}

}  // namespace
}  // namespace faultline::transport
