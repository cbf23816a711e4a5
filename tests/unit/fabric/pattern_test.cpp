// SPDX-License-Identifier: BSD-3-Clause
// Patterns of traffic, with messages that arrive in the order in which they are started.
#include "apps/sim/traffic/pattern.hpp"

#include <deque>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "apps/sim/traffic/allreduce.hpp"
#include "apps/sim/traffic/replay.hpp"
#include "apps/sim/traffic/streams.hpp"

namespace faultline::fabric {
namespace {

struct Started {
  FlowKey key;
  uint32_t bytes = 0;
};

class Messages final : public Starter {
 public:
  void start(const FlowKey& key, uint32_t bytes) override {
    under_way.push_back({key, bytes});
    all.push_back({key, bytes});
  }
  /// Delivers messages until none is left, or `most` are delivered.
  void run(Pattern& pattern, size_t most = ~size_t{0}) {
    while (pattern.next_ns() != kNever) pattern.on_time(pattern.next_ns(), *this);
    for (size_t i = 0; i < most && !under_way.empty(); ++i) {
      const Started message = under_way.front();
      under_way.pop_front();
      pattern.on_delivered(message.key, *this);
      pattern.on_sent(message.key, *this);
    }
  }

  std::deque<Started> under_way;
  std::vector<Started> all;
};

TEST(Permutation, SendsFromEachHostToOneOtherAndFillsEachOnce) {
  for (const uint32_t hosts : {2U, 3U, 64U}) {
    std::set<uint32_t> sources, destinations;
    for (const Route& route : permutation_routes(hosts, chaos::Random(5))) {
      EXPECT_NE(route.source, route.destination);
      sources.insert(route.source);
      destinations.insert(route.destination);
    }
    EXPECT_EQ(sources.size(), hosts);
    EXPECT_EQ(destinations.size(), hosts);
  }
}

TEST(Incast, HasDistinctSendersOtherThanTheReceiver) {
  std::set<uint32_t> sources;
  for (const Route& route : incast_routes(20, 7, 12, chaos::Random(5))) {
    EXPECT_EQ(route.destination, 7U);
    EXPECT_NE(route.source, 7U);
    EXPECT_LT(route.source, 20U);
    sources.insert(route.source);
  }
  EXPECT_EQ(sources.size(), 12U);
}

TEST(AllToAll, JoinsEachPairInBothDirections) {
  std::set<std::pair<uint32_t, uint32_t>> pairs;
  for (const Route& route : all_to_all_routes(6)) pairs.emplace(route.source, route.destination);
  EXPECT_EQ(pairs.size(), 30U);
  for (const auto& [source, destination] : pairs) EXPECT_NE(source, destination);
}

TEST(Streams, KeepTheOutstandingMessagesAndEndAfterTheLast) {
  TrafficParameters traffic;
  traffic.connections = 3;
  traffic.outstanding = 2;
  traffic.messages = 5;
  traffic.message_bytes = 100;
  const auto pattern = make_pattern(traffic, 4, chaos::Random(1));
  EXPECT_EQ(pattern->routes().size(), 12U);
  Messages messages;
  messages.run(*pattern, 0);
  EXPECT_EQ(messages.all.size(), 12U * 2);
  messages.run(*pattern);
  EXPECT_EQ(messages.all.size(), 12U * 5);
}

TEST(Streams, BeginWithinTheSpread) {
  TrafficParameters traffic;
  traffic.spread_ns = 1000;
  traffic.outstanding = 1;
  const auto pattern = make_pattern(traffic, 50, chaos::Random(1));
  Messages messages;
  std::set<TimeNs> times;
  while (pattern->next_ns() != kNever) {
    EXPECT_LE(pattern->next_ns(), 1000U);
    times.insert(pattern->next_ns());
    pattern->on_time(pattern->next_ns(), messages);
  }
  EXPECT_EQ(messages.all.size(), 50U);
  EXPECT_GT(times.size(), 30U);
}

TEST(RingAllreduce, TakesTwiceAsManyStepsAsOtherHosts) {
  TrafficParameters traffic;
  traffic.pattern = PatternKind::ring_allreduce;
  traffic.message_bytes = 8000;
  traffic.connections = 2;
  traffic.messages = 3;
  const auto pattern = make_pattern(traffic, 8, chaos::Random(1));
  Messages messages;
  messages.run(*pattern);
  constexpr uint32_t kSteps = 2 * 7;
  EXPECT_EQ(messages.all.size(), 3U * kSteps * 8 * 2);
  EXPECT_EQ(pattern->rounds(), 3U);
  std::map<uint32_t, uint32_t> bytes_of_host;
  for (const Started& message : messages.all) {
    EXPECT_EQ(message.bytes, 500U);  // an eighth of the half
    bytes_of_host[pattern->routes()[message.key.connection].source] += message.bytes;
  }
  for (const auto& [host, bytes] : bytes_of_host) EXPECT_EQ(bytes, 3U * kSteps * 1000) << host;
}

TEST(RingAllreduce, TakesAStepOnlyAfterTheMessageOfTheStepBefore) {
  TrafficParameters traffic;
  traffic.pattern = PatternKind::ring_allreduce;
  const auto pattern = make_pattern(traffic, 4, chaos::Random(1));
  Messages messages;
  messages.run(*pattern, 0);
  EXPECT_EQ(messages.all.size(), 4U);
  pattern->on_delivered({.connection = 2, .tag = 0}, messages);
  ASSERT_EQ(messages.all.size(), 5U);
  EXPECT_EQ(messages.all[4].key.connection, 3U);  // the receiver's own
  EXPECT_EQ(messages.all[4].key.tag, 1U);
}

TEST(TreeAllreduce, SendsEachChunkUpAndDownOnceForEachHost) {
  for (const uint32_t hosts : {2U, 3U, 6U, 16U}) {
    TrafficParameters traffic;
    traffic.pattern = PatternKind::tree_allreduce;
    traffic.message_bytes = 1000;
    traffic.chunk_bytes = 300;
    traffic.messages = 2;
    const auto pattern = make_pattern(traffic, hosts, chaos::Random(1));
    Messages messages;
    messages.run(*pattern);
    EXPECT_EQ(pattern->rounds(), 2U);
    EXPECT_EQ(messages.all.size(), 2U * (hosts - 1) * 2 * 4);
    uint64_t bytes = 0;
    for (const Started& message : messages.all) bytes += message.bytes;
    EXPECT_EQ(bytes, 2U * (hosts - 1) * 2 * 1000);
  }
}

TEST(TreeAllreduce, SendsUpOnlyWhatBothChildrenHaveSent) {
  TrafficParameters traffic;
  traffic.pattern = PatternKind::tree_allreduce;
  traffic.message_bytes = traffic.chunk_bytes = 100;
  const auto pattern = make_pattern(traffic, 7, chaos::Random(1));
  Messages messages;
  messages.run(*pattern, 0);
  ASSERT_EQ(messages.all.size(), 4U);  // of the leaves 3 to 6
  pattern->on_delivered(messages.all[0].key, messages);
  EXPECT_EQ(messages.all.size(), 4U);
  pattern->on_delivered(messages.all[1].key, messages);
  ASSERT_EQ(messages.all.size(), 5U);
  EXPECT_EQ(pattern->routes()[messages.all[4].key.connection].source, 1U);
  EXPECT_EQ(pattern->routes()[messages.all[4].key.connection].destination, 0U);
}

TEST(Replay, StartsRowsAtTheirTimesAndSharesConnectionsOfAPair) {
  TrafficParameters traffic;
  traffic.pattern = PatternKind::trace;
  traffic.connections = 2;
  traffic.trace = {{10, 0, 1, 100}, {20, 1, 0, 200}, {20, 0, 1, 300}, {30, 0, 1, 400}};
  const auto pattern = make_pattern(traffic, 2, chaos::Random(1));
  EXPECT_EQ(pattern->routes().size(), 4U);
  Messages messages;
  EXPECT_EQ(pattern->next_ns(), 10U);
  pattern->on_time(10, messages);
  EXPECT_EQ(messages.all.size(), 1U);
  EXPECT_EQ(pattern->next_ns(), 20U);
  pattern->on_time(20, messages);
  pattern->on_time(30, messages);
  EXPECT_EQ(pattern->next_ns(), kNever);
  ASSERT_EQ(messages.all.size(), 4U);
  EXPECT_EQ(messages.all[0].key.connection, 0U);
  EXPECT_EQ(messages.all[1].key.connection, 2U);
  EXPECT_EQ(messages.all[2].key.connection, 1U);
  EXPECT_EQ(messages.all[3].key.connection, 0U);
  EXPECT_EQ(messages.all[3].bytes, 400U);
}

}  // namespace
}  // namespace faultline::fabric
