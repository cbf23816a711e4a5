// SPDX-License-Identifier: BSD-3-Clause
// What a flow suffers, to the nanosecond and the packet.
#include "stack/trouble/flow_table.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace faultline::trouble {
namespace {

constexpr uint64_t kFrameBytes = 1000;
constexpr TimeNs kStart = 1'000'000;

Object qp(uint32_t number) {
  return {ObjectKind::qp, 0, number};
}

struct Step {
  TimeNs at;                ///< after kStart
  FlowTable::Passage fate;  ///< expected
};

struct Queue {
  const char* name;
  Action action;
  std::vector<Step> steps;
};

constexpr bool kLost = true;

// 1000 bytes at 8 Mb/s take 1 ms.
const Queue kQueues[] = {
    {"RateSpacesPackets",
     {.kind = Action::Kind::rate, .bits_per_second = 8'000'000, .queue_bytes = 100'000},
     {{0, {false, 0}}, {0, {false, 1'000'000}}, {0, {false, 2'000'000}}, {500'000, {false, 2'500'000}}}},
    {"RateForgetsAnIdleTime",
     {.kind = Action::Kind::rate, .bits_per_second = 8'000'000, .queue_bytes = 100'000},
     {{0, {false, 0}}, {5'000'000, {false, 0}}, {5'000'000, {false, 1'000'000}}}},
    {"RateLosesWhatItsQueueDoesNotHold",
     {.kind = Action::Kind::rate, .bits_per_second = 8'000'000, .queue_bytes = 2'500},
     {{0, {false, 0}},
      {0, {false, 1'000'000}},
      {0, {kLost, 0}},
      {500'000, {false, 1'500'000}},
      {500'000, {kLost, 0}},
      {2'000'000, {false, 1'000'000}}}},
    {"RateTakesAPacketLongerThanItsQueueIfItIsEmpty",
     {.kind = Action::Kind::rate, .bits_per_second = 8'000'000, .queue_bytes = 1},
     {{0, {false, 0}}, {0, {kLost, 0}}, {1'000'000, {false, 0}}}},
    {"RateRoundsUp",
     {.kind = Action::Kind::rate, .bits_per_second = 3'000'000'000, .queue_bytes = 100'000},
     {{0, {false, 0}}, {0, {false, 2'667}}, {0, {false, 5'334}}}},
    {"SlowServesOneAfterTheOther",
     {.kind = Action::Kind::slow, .service_ns = 300},
     {{0, {false, 300}}, {0, {false, 600}}, {100, {false, 800}}, {5'000, {false, 300}}}},
    {"SlowEnds",
     {.kind = Action::Kind::slow, .duration_ns = 1'000, .service_ns = 300},
     {{0, {false, 300}}, {999, {false, 300}}, {1'000, {false, 0}}}},
    {"PartitionLosesAllForItsTime",
     {.kind = Action::Kind::partition, .duration_ns = 2'000},
     {{0, {kLost, 0}}, {1'999, {kLost, 0}}, {2'000, {false, 0}}}},
};

class Queues : public ::testing::TestWithParam<Queue> {};

TEST_P(Queues, HaveExactTimes) {
  FlowTable table;
  const PacketOnWay packet{false, qp(0), "198.18.0.1", kFrameBytes};
  ASSERT_TRUE(table.begin(GetParam().action, packet, kStart));
  size_t number = 0;
  for (const Step& step : GetParam().steps) {
    const FlowTable::Passage got = table.pass(packet, kStart + step.at);
    EXPECT_EQ(got.is_lost, step.fate.is_lost) << "packet " << number;
    EXPECT_EQ(got.delay_ns, step.fate.delay_ns) << "packet " << number;
    ++number;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Queues, ::testing::ValuesIn(kQueues),
                         [](const auto& queue) { return std::string(queue.param.name); });

struct Scope {
  const char* name;
  FlowScope flow;
  bool other_qp, other_peer, other_direction, other_device;  ///< whether they are lost too
};
const Scope kScopes[] = {
    {"Qp", FlowScope::qp, false, false, false, false},
    {"Peer", FlowScope::peer, true, false, false, false},
    {"Port", FlowScope::port, true, true, false, false},
};

class Scopes : public ::testing::TestWithParam<Scope> {};

TEST_P(Scopes, SelectTheFlow) {
  const Action action{.kind = Action::Kind::partition, .duration_ns = 1'000, .flow = GetParam().flow};
  FlowTable table;
  const PacketOnWay first{true, qp(0), "198.18.0.1", kFrameBytes};
  ASSERT_TRUE(table.begin(action, first, kStart));
  const auto is_lost = [&](const PacketOnWay& packet) { return table.pass(packet, kStart).is_lost; };
  EXPECT_TRUE(is_lost(first));
  EXPECT_EQ(is_lost({true, qp(1), "198.18.0.1", kFrameBytes}), GetParam().other_qp);
  EXPECT_EQ(is_lost({true, qp(0), "198.18.0.2", kFrameBytes}), GetParam().other_peer);
  EXPECT_EQ(is_lost({false, qp(0), "198.18.0.1", kFrameBytes}), GetParam().other_direction);
  EXPECT_EQ(is_lost({true, {ObjectKind::qp, 1, 0}, "198.18.0.1", kFrameBytes}), GetParam().other_device);
}

INSTANTIATE_TEST_SUITE_P(All, Scopes, ::testing::ValuesIn(kScopes),
                         [](const auto& scope) { return std::string(scope.param.name); });

TEST(FlowTable, AnActionBeginsOnceForAFlowUntilItHasEnded) {
  const Action action{.kind = Action::Kind::partition, .duration_ns = 1'000};
  FlowTable table;
  const PacketOnWay packet{true, qp(0), "198.18.0.1", kFrameBytes};
  EXPECT_TRUE(table.begin(action, packet, kStart));
  EXPECT_FALSE(table.begin(action, packet, kStart + 999));
  EXPECT_TRUE(table.begin(action, {true, qp(1), "198.18.0.1", kFrameBytes}, kStart + 999)) << "another flow";
  EXPECT_TRUE(table.begin(action, packet, kStart + 1'000));
  EXPECT_TRUE(table.pass(packet, kStart + 1'999).is_lost);
}

TEST(FlowTable, APacketPassesWhatItsFlowSuffersInTurn) {
  const Action slow{.kind = Action::Kind::slow, .service_ns = 500'000};
  const Action rate{.kind = Action::Kind::rate, .bits_per_second = 8'000'000, .queue_bytes = 100'000};
  FlowTable table;
  const PacketOnWay packet{false, qp(0), "198.18.0.1", kFrameBytes};
  ASSERT_TRUE(table.begin(slow, packet, kStart));
  ASSERT_TRUE(table.begin(rate, packet, kStart));
  EXPECT_EQ(table.pass(packet, kStart).delay_ns, 500'000U);
  EXPECT_EQ(table.pass(packet, kStart).delay_ns, 1'500'000U) << "served after 1 ms, and free then";
}

}  // namespace
}  // namespace faultline::trouble
