// SPDX-License-Identifier: BSD-3-Clause
// Work requests posted by the core's own thread are sent within the post (Core::send_posted).
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::post_by_core_test {
namespace {

using transport::CompletionStatus;
using transport::SendOpcode;

struct OwnPosts : Pair {
  explicit OwnPosts(const SimulationScript& script = quiet_fabric()) : Pair(script) { a.post_as_owner(); }
};

TEST(Posted, IsSentBeforeTheNextTurn) {
  OwnPosts pair;
  pair.receive(64);
  pair.run();
  const uint64_t before = pair.counters_a().tx_packets;
  pair.send(64);
  EXPECT_EQ(pair.counters_a().tx_packets, before + 1);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), (Statuses{CompletionStatus::success}));
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 64));
}

TEST(Posted, ArrivesWholeWhateverItsLength) {
  for (const uint32_t length : {0U, 1U, 1024U, 1025U, 4096U}) {
    OwnPosts pair;
    pair.write(length);
    pair.run();
    pair.read(length);
    pair.run();
    EXPECT_EQ(Pair::statuses(pair.a.poll_sends()),
              (Statuses{CompletionStatus::success, CompletionStatus::success}));
    EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, length)) << length;
  }
}

TEST(Posted, GoesOnByItselfWhereOnePostIsNotEnough) {
  // More messages than a window holds, posted one by one.
  OwnPosts pair;
  for (int i = 0; i < 60; ++i) pair.write(4096);
  pair.run();
  const auto sent = pair.a.poll_sends();
  EXPECT_EQ(sent.size(), 60U);
  for (const auto& completion : sent) EXPECT_EQ(completion.status, CompletionStatus::success);
}

TEST(Posted, WaitsForAPageAndIsSentThen) {
  OwnPosts pair;
  EXPECT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_write, pair.paged_a, 3000, &pair.pinned_b)));
  EXPECT_TRUE(pair.a.poll_sends().empty());
  pair.run();
  EXPECT_EQ(pair.counters_a().faults_requester, 1U);
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), (Statuses{CompletionStatus::success}));
  EXPECT_TRUE(Pair::same(pair.paged_a, pair.pinned_b, 3000));
}

TEST(Posted, IsSentAgainWhereItWasLost) {
  SimulationScript script = quiet_fabric();
  script.a_to_b.drop_mask = 1;
  OwnPosts pair(script);
  pair.write(64);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), (Statuses{CompletionStatus::success}));
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 64));
}

TEST(Posted, IsFlushedWhereTheQueueIsInError) {
  OwnPosts pair;
  transport::QpAttributes attributes;
  attributes.state = transport::QpState::err;
  ASSERT_EQ(pair.a.modify(attributes, transport::kAttrState), 0);
  pair.run();
  pair.write(64);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), (Statuses{CompletionStatus::work_request_flushed}));
}

}  // namespace
}  // namespace faultline::sim::post_by_core_test
