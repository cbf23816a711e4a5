// SPDX-License-Identifier: BSD-3-Clause
// Page faults on the data path: the packets on the wire, and that no fault ever ends in a time-out.
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::fault_test {
namespace {

using transport::CompletionStatus;
using transport::SendOpcode;
using transport::Stall;

TEST(Fault, TheResponderParksAndGoesOnWithoutAWord) {
  Pair pair;
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_a, 4096, &pair.paged_b)));
  pair.run();
  EXPECT_EQ(pair.lines(), (Lines{"a> WRITE_FIRST 100", "a> WRITE_MIDDLE 101", "a> WRITE_MIDDLE 102",
                                 "a> WRITE_LAST 103!", "b> ACK 103"}));
  EXPECT_GE(pair.sent_at(4), 20 * kMicrosecond);
  // One fault request covers the rest of the message.
  ASSERT_EQ(pair.simulation.b.memory.requests.size(), 1U);
  EXPECT_EQ(pair.simulation.b.memory.requests[0].va, pair.paged_b.base);
  EXPECT_EQ(pair.simulation.b.memory.requests[0].length_bytes, 4096U);
  EXPECT_EQ(pair.counters_b().packets_parked, 4U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.paged_b, 4096));
}

/// Returns a fabric whose hosts serve each fault on their engine's own thread.
SimulationScript serving_fabric() {
  SimulationScript script = quiet_fabric();
  script.a.memory.serve_at_once_permille = script.b.memory.serve_at_once_permille = 1000;
  return script;
}

TEST(Fault, APageThatIsServedAtOnceParksNoPacketOfTheResponder) {
  Pair pair(serving_fabric());
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_a, 4096, &pair.paged_b)));
  pair.run();
  EXPECT_EQ(pair.lines(), (Lines{"a> WRITE_FIRST 100", "a> WRITE_MIDDLE 101", "a> WRITE_MIDDLE 102",
                                 "a> WRITE_LAST 103!", "b> ACK 103"}));
  EXPECT_EQ(pair.simulation.b.memory.served_at_once, 1U);
  EXPECT_TRUE(pair.simulation.b.memory.requests.empty());
  EXPECT_EQ(pair.counters_b().faults_responder, 1U);
  EXPECT_EQ(pair.counters_b().packets_parked, 0U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.paged_b, 4096));
}

TEST(Fault, AReceiveWhosePageIsServedAtOnceParksNoPacket) {
  Pair pair(serving_fabric());
  ASSERT_TRUE(pair.b.post_receive(5, {Pair::sge(pair.paged_b, 3000)}));
  pair.send(3000);
  pair.run();
  EXPECT_EQ(pair.counters_b().packets_parked, 0U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.paged_b, 3000));
  EXPECT_EQ(pair.b.poll_receives().size(), 1U);
}

TEST(Fault, ASendAndAReadWhosePagesAreServedAtOnceWaitForNothing) {
  Pair pair(serving_fabric());
  pair.receive(3000);
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::send, pair.paged_a, 3000)));
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_read, pair.pinned_a, 900, &pair.paged_b)));
  pair.run();
  EXPECT_TRUE(pair.simulation.a.memory.requests.empty());
  EXPECT_TRUE(pair.simulation.b.memory.requests.empty());
  EXPECT_GE(pair.simulation.a.memory.served_at_once, 1U);
  EXPECT_GE(pair.simulation.b.memory.served_at_once, 1U);
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
  const auto completions = pair.a.poll_sends();
  ASSERT_EQ(completions.size(), 2U);
  for (const auto& completion : completions) EXPECT_EQ(completion.status, CompletionStatus::success);
}

TEST(Fault, AReadResponseWhosePageWasTakenAwayIsPlacedWithoutANewRequest) {
  SimulationScript script = serving_fabric();
  script.a.memory.invalidate_permille = 1000;
  script.a.memory.invalidations_limit = 3;
  script.a.memory.write_protect_permille = 0;
  Pair pair(script);
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_read, pair.paged_a, 900, &pair.pinned_b)));
  pair.run();
  EXPECT_EQ(pair.simulation.a.memory.invalidations, 3U);
  EXPECT_GE(pair.counters_a().faults_requester, 2U);
  EXPECT_EQ(pair.counters_a().retransmitted_packets, 0U);
  EXPECT_EQ(pair.lines().size(), 2U) << "a request and its response";
  EXPECT_TRUE(Pair::same(pair.paged_a, pair.pinned_b, 900));
}

/// A page that is taken away before each access: the packet waits for later turns, and other work goes on.
TEST(Fault, APageThatIsServedAtOnceAndTakenAwayAgainComesThroughInTheEnd) {
  SimulationScript script = serving_fabric();
  script.b.memory.invalidate_permille = 1000;
  script.b.memory.invalidations_limit = 40;
  script.b.memory.write_protect_permille = 0;
  Pair pair(script);
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_a, 4096, &pair.paged_b)));
  pair.run();
  EXPECT_GT(pair.simulation.b.memory.served_at_once, 4U) << "more than one turn may repeat in place";
  EXPECT_GE(pair.counters_b().packets_parked, 1U);
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.paged_b, 4096));
}

TEST(Fault, AfterTheParkDeadlineOneRnrNakWithTheSmallestTimer) {
  SimulationScript script = quiet_fabric();
  script.b.core.park_deadline_ns = script.b.core.answer_deadline_ns = 10 * kMicrosecond;
  Pair pair(script);
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_a, 4096, &pair.paged_b)));
  pair.run();
  EXPECT_EQ(pair.lines(),
            (Lines{"a> WRITE_FIRST 100", "a> WRITE_MIDDLE 101", "a> WRITE_MIDDLE 102", "a> WRITE_LAST 103!",
                   "b> ACK 100 RNR1", "a> WRITE_FIRST 100", "a> WRITE_MIDDLE 101", "a> WRITE_MIDDLE 102",
                   "a> WRITE_LAST 103!", "b> ACK 103"}));
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.paged_b, 4096));
}

TEST(Fault, WhatFindsNoRoomBehindAParkedPacketIsAskedForWhenItsTurnComes) {
  SimulationScript script = quiet_fabric();
  script.b.core.park_packets_per_qp = 2;
  Pair pair(script);
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_a, 4096, &pair.paged_b)));
  pair.run();
  EXPECT_EQ(pair.lines()[4], "b> ACK 102 NAK0");
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.paged_b, 4096));
}

/// A page fault that lasts many time-outs, at a peer that sends stall notifications.
TEST(Fault, APeerThatSaysThatAPageIsComingIsNotAskedAgain) {
  for (const Stall stall : {Stall::park, Stall::rnr, Stall::park_then_rnr}) {
    SCOPED_TRACE(static_cast<int>(stall));
    SimulationScript script = selective_fabric();
    script.b.core.stall = stall;
    script.b.memory.resolve_min_ns = script.b.memory.resolve_max_ns = 40'000 * kMicrosecond;
    ConnectionScript connection;
    connection.timeout = 8;  // 1 ms
    connection.retry_count = 1;
    connection.rnr_retry = 0;
    Pair pair(script, connection);
    ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_a, 900, &pair.paged_b)));
    ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_read, pair.pinned_a, 900, &pair.paged_b)));
    pair.run();
    EXPECT_EQ(pair.counters_a().timeouts, 0U);
    // With parked packets nothing is retransmitted; with RNR NAKs each of the two requests is retransmitted.
    EXPECT_LE(pair.counters_a().retransmitted_packets, stall == Stall::park ? 0U : 4U);
    for (const auto& completion : pair.a.poll_sends())
      EXPECT_EQ(completion.status, CompletionStatus::success);
    EXPECT_TRUE(Pair::same(pair.pinned_a, pair.paged_b, 900));
  }
}

TEST(Fault, APostedReceiveThatIsNotThereParksItsSend) {
  Pair pair;
  ASSERT_TRUE(pair.b.post_receive(5, {Pair::sge(pair.paged_b, 3000)}));
  pair.send(3000);
  pair.run();
  EXPECT_EQ(pair.lines(),
            (Lines{"a> SEND_FIRST 100", "a> SEND_MIDDLE 101", "a> SEND_LAST 102!", "b> ACK 102"}));
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.paged_b, 3000));
  EXPECT_EQ(pair.b.poll_receives().size(), 1U);
}

TEST(Fault, TheRequesterHoldsASendBeforeItIsOnTheWire) {
  Pair pair;
  pair.receive(3000);
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::send, pair.paged_a, 3000)));
  const TimeNs posted = pair.simulation.now();
  pair.run();
  EXPECT_EQ(pair.lines(),
            (Lines{"a> SEND_FIRST 100", "a> SEND_MIDDLE 101", "a> SEND_LAST 102!", "b> ACK 102"}));
  EXPECT_GE(pair.simulation.trace.entries()[0].sent_ns, posted + 20 * kMicrosecond);
  EXPECT_EQ(pair.simulation.a.memory.faults, 1U);
  EXPECT_TRUE(Pair::same(pair.paged_a, pair.pinned_b, 3000));
}

TEST(Fault, TheDestinationOfAReadIsFaultedInAheadOfTheData) {
  Pair pair;
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_read, pair.paged_a, 9000, &pair.pinned_b)));
  const TimeNs posted = pair.simulation.now();
  pair.run();
  EXPECT_EQ(pair.lines()[0], "a> READ_REQ 100!");
  EXPECT_GE(pair.simulation.trace.entries()[0].sent_ns, posted + 20 * kMicrosecond);
  ASSERT_EQ(pair.simulation.a.memory.requests.size(), 1U);
  EXPECT_EQ(pair.simulation.a.memory.requests[0].length_bytes, 9000U);
  EXPECT_EQ(pair.counters_a().retransmitted_packets, 0U);
  EXPECT_TRUE(Pair::same(pair.paged_a, pair.pinned_b, 9000));
}

TEST(Fault, AReadOfAbsentPagesWaitsAndOthersGoOn) {
  Pair pair;
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_read, pair.pinned_a, 100, &pair.paged_b)));
  pair.write(200);
  pair.run();
  EXPECT_EQ(pair.lines(),
            (Lines{"a> READ_REQ 100!", "a> WRITE_ONLY 101!", "b> READ_RESP_ONLY 100", "b> ACK 101"}));
  EXPECT_EQ(pair.a.poll_sends().size(), 2U);
}

TEST(Fault, ManyFaultsInOneMessageCostNoTimeOut) {
  // The whole message takes twelve times the acknowledgement timeout; each fault takes a third of that
  // timeout.
  SimulationScript script = quiet_fabric();
  script.b.memory.page_bytes = 512;
  script.b.memory.resolve_min_ns = script.b.memory.resolve_max_ns = 1'400 * kMicrosecond;
  script.b.memory.invalidate_permille = 1000;
  script.b.memory.invalidations_limit = 36;
  ConnectionScript connection;
  connection.timeout = 10;  // 4.2 ms
  connection.retry_count = 1;
  Pair pair(script, connection);
  for (int i = 0; i < 40; ++i)
    ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_a, 900, &pair.paged_b)));
  pair.run();
  const auto completions = pair.a.poll_sends();
  EXPECT_EQ(completions.size(), 40U);
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
  EXPECT_GT(pair.simulation.b.memory.faults, 12U);
  for (const auto& completion : completions) EXPECT_EQ(completion.status, CompletionStatus::success);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.paged_b, 900));
}

TEST(Fault, AFaultQueueThatIsFullIsTriedAgain) {
  SimulationScript script = quiet_fabric();
  script.a.memory.queue_full_permille = script.b.memory.queue_full_permille = 900;
  Pair pair(script);
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_write, pair.paged_a, 5000, &pair.paged_b)));
  pair.run();
  EXPECT_GT(pair.simulation.a.memory.refused + pair.simulation.b.memory.refused, 0U);
  EXPECT_TRUE(Pair::same(pair.paged_a, pair.paged_b, 5000));
}

TEST(Fault, APageThatCannotBeHadFailsTheSideWhoseItIs) {
  Pair local;
  local.paged_a.add_hole(local.paged_a.base + 4500, 1);
  ASSERT_TRUE(local.a.post_send(local.request(SendOpcode::rdma_write, local.paged_a, 9000, &local.pinned_b)));
  local.run();
  EXPECT_EQ(Pair::statuses(local.a.poll_sends()), Statuses{CompletionStatus::local_protection});
  EXPECT_EQ(local.b.state(), transport::QpState::rts);

  Pair remote;
  remote.paged_b.add_hole(remote.paged_b.base + 4500, 1);
  ASSERT_TRUE(
      remote.a.post_send(remote.request(SendOpcode::rdma_write, remote.pinned_a, 9000, &remote.paged_b)));
  remote.run();
  EXPECT_EQ(Pair::statuses(remote.a.poll_sends()), Statuses{CompletionStatus::remote_access});
  EXPECT_EQ(remote.b.state(), transport::QpState::err);
}

TEST(Fault, AFailureThatComesBehindTheParkDeadlineStillEndsIt) {
  SimulationScript script = quiet_fabric();
  script.b.core.park_deadline_ns = script.b.core.answer_deadline_ns = 5 * kMicrosecond;
  for (const SendOpcode opcode : {SendOpcode::rdma_write, SendOpcode::rdma_read}) {
    Pair pair(script);
    pair.paged_b.add_hole(pair.paged_b.base, 1);
    ASSERT_TRUE(pair.a.post_send(pair.request(opcode, pair.pinned_a, 100, &pair.paged_b)));
    pair.run();
    EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::remote_access});
    EXPECT_LE(pair.counters_b().rnr_naks_sent, 2U);
  }
}

TEST(Fault, AnAnswerOfTheOldLifeMeansNothingToTheNew) {
  Pair pair;
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_write, pair.paged_a, 100, &pair.pinned_b)));
  pair.simulation.step();
  ASSERT_EQ(pair.simulation.a.memory.faults, 1U);
  transport::QpAttributes attributes;
  attributes.state = transport::QpState::reset;
  ASSERT_EQ(pair.a.modify(attributes, transport::kAttrState), 0);
  pair.run();
  EXPECT_TRUE(pair.lines().empty());
  EXPECT_TRUE(pair.a.poll_sends().empty());
  pair.a.destroy();
}

}  // namespace
}  // namespace faultline::sim::fault_test
