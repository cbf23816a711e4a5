// SPDX-License-Identifier: BSD-3-Clause
// RNR NAKs and errors between two ends. IBA vol. 1, 9.7.5.2.8 and table 45; completions as in ibv_poll_cq(3).
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::receiver_not_ready_test {
namespace {

using transport::AsyncEvent;
using transport::CompletionStatus;
using transport::QpState;
using transport::SendOpcode;

TEST(ReceiverNotReady, TheTimerOfTheNakIsWaitedOut) {
  // IBA table 45.
  static constexpr struct {
    uint8_t code;
    uint64_t timer_us;
  } kRows[] = {{0, 655360},  {1, 10},      {2, 20},      {3, 30},     {4, 40},     {5, 60},     {6, 80},
               {7, 120},     {8, 160},     {9, 240},     {10, 320},   {11, 480},   {12, 640},   {13, 960},
               {14, 1280},   {15, 1920},   {16, 2560},   {17, 3840},  {18, 5120},  {19, 7680},  {20, 10240},
               {21, 15360},  {22, 20480},  {23, 30720},  {24, 40960}, {25, 61440}, {26, 81920}, {27, 122880},
               {28, 163840}, {29, 245760}, {30, 327680}, {31, 491520}};
  for (const auto& row : kRows) {
    ConnectionScript connection;
    connection.min_rnr_timer = row.code;
    Pair pair(quiet_fabric(), connection);
    pair.send(100);
    pair.simulation.at(pair.simulation.now() + 5 * kMicrosecond, [&] { pair.receive(100); });
    pair.run();
    ASSERT_EQ(pair.lines(), (Lines{"a> SEND_ONLY 100!", "b> ACK 100 RNR" + std::to_string(row.code),
                                   "a> SEND_ONLY 100!", "b> ACK 100"}));
    const uint64_t wait_ns = pair.sent_at(2) - pair.sent_at(1);
    EXPECT_GE(wait_ns, row.timer_us * kMicrosecond) << "code " << int{row.code};
    EXPECT_EQ(pair.a.poll_sends().size(), 1U);
    EXPECT_EQ(pair.counters_a().timeouts, 0U);
  }
}

TEST(ReceiverNotReady, ItsRetriesAreCounted) {
  for (const uint8_t rnr_retry : {uint8_t{0}, uint8_t{3}, uint8_t{6}}) {
    ConnectionScript connection;
    connection.rnr_retry = rnr_retry;
    Pair pair(quiet_fabric(), connection);
    pair.send(100);
    pair.send(100);
    pair.run();
    EXPECT_EQ(pair.counters_b().rnr_naks_sent, 1U + rnr_retry);
    EXPECT_EQ(Pair::statuses(pair.a.poll_sends()),
              (Statuses{CompletionStatus::rnr_retry_exceeded, CompletionStatus::work_request_flushed}));
    EXPECT_EQ(pair.counters_a().rnr_naks_received, 1U + rnr_retry);
    EXPECT_EQ(pair.counters_a().rnr_retries_exceeded, 1U);
    EXPECT_EQ(pair.counters_a().sequence_naks_received, 0U);
    EXPECT_EQ(pair.b.state(), QpState::rts);
  }
}

TEST(ReceiverNotReady, SevenMeansForEver) {
  Pair pair;
  pair.send(100);
  pair.simulation.at(pair.simulation.now() + 200 * kMillisecond, [&] { pair.receive(100); });
  pair.run();
  EXPECT_GT(pair.counters_b().rnr_naks_sent, 7U);
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::success});
}

TEST(ReceiverNotReady, AWriteWithImmediateHasItsDataOnceAndItsReceiveLater) {
  Pair pair;
  SendRequest write = pair.request(SendOpcode::rdma_write_with_imm, pair.pinned_a, 3000, &pair.pinned_b);
  write.immediate = 0x01020304;
  ASSERT_TRUE(pair.a.post_send(write));
  pair.simulation.at(pair.simulation.now() + 100 * kMicrosecond,
                     [&] { EXPECT_TRUE(pair.b.post_receive(77, {})); });
  pair.run();
  const auto received = pair.b.poll_receives();
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].opcode, transport::CompletionOpcode::recv_rdma_with_imm);
  EXPECT_EQ(received[0].immediate_or_rkey, 0x01020304U);
  EXPECT_EQ(received[0].byte_length, 3000U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 3000));
}

/// Checks both ends after a request that the responder refused.
void expect_refused(Pair& pair, const std::string& nak, CompletionStatus status) {
  pair.receive(100);
  pair.send(10);
  pair.run();
  EXPECT_NE(pair.lines().back().find(nak), std::string::npos) << pair.lines().back();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), (Statuses{status, CompletionStatus::work_request_flushed}));
  EXPECT_EQ(pair.a.state(), QpState::err);
  EXPECT_EQ(pair.b.state(), QpState::err);
  EXPECT_EQ(pair.b.poll_receives().back().status, CompletionStatus::work_request_flushed);
}

TEST(Refusal, AWrongRkeyIsARemoteAccessError) {
  for (const SendOpcode opcode : {SendOpcode::rdma_write, SendOpcode::rdma_read}) {
    Pair pair;
    SendRequest request = pair.request(opcode, pair.pinned_a, 3000, &pair.pinned_b);
    request.rkey ^= 1;
    ASSERT_TRUE(pair.a.post_send(request));
    expect_refused(pair, "NAK2", CompletionStatus::remote_access);
    ASSERT_FALSE(pair.simulation.b.events.empty());
    EXPECT_EQ(pair.simulation.b.events[0].event, AsyncEvent::qp_access_error);
  }
}

TEST(Refusal, ARangeThatLeavesTheRegionIsARemoteAccessErrorAndWritesNothing) {
  Pair pair;
  const std::vector<uint8_t> before = pair.pinned_b.bytes;
  SendRequest request = pair.request(SendOpcode::rdma_write, pair.pinned_a, 3000, &pair.pinned_b);
  request.remote_va = pair.pinned_b.base + pair.pinned_b.bytes.size() - 2999;
  ASSERT_TRUE(pair.a.post_send(request));
  expect_refused(pair, "NAK2", CompletionStatus::remote_access);
  EXPECT_EQ(pair.pinned_b.bytes, before);
}

TEST(Refusal, AQpWithoutTheRightDoesNotSupportTheOperation) {
  ConnectionScript connection;
  connection.access_flags = odp::kRemoteRead;
  Pair writing(quiet_fabric(), connection);
  writing.write(100);
  expect_refused(writing, "NAK1", CompletionStatus::remote_invalid_request);
  connection.access_flags = odp::kRemoteWrite;
  Pair reading(quiet_fabric(), connection);
  reading.read(100);
  expect_refused(reading, "NAK1", CompletionStatus::remote_invalid_request);
}

TEST(Refusal, AReceiveTooSmallEndsBothSides) {
  Pair pair;
  pair.receive(1500);
  pair.send(3000);
  pair.receive(100);
  pair.send(10);
  pair.run();
  EXPECT_EQ(pair.lines().back(), "b> ACK 101 NAK1")
      << "an invalid request, unlike rxe's (docs/conformance.md)";
  EXPECT_EQ(Pair::statuses(pair.b.poll_receives()),
            (Statuses{CompletionStatus::local_length, CompletionStatus::work_request_flushed}));
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()),
            (Statuses{CompletionStatus::remote_invalid_request, CompletionStatus::work_request_flushed}));
}

TEST(Refusal, AWrongLkeyNeverReachesTheWire) {
  for (const SendOpcode opcode : {SendOpcode::send, SendOpcode::rdma_write, SendOpcode::rdma_read}) {
    Pair pair;
    SendRequest request = pair.request(opcode, pair.pinned_a, 100, &pair.pinned_b);
    request.sges[0].lkey ^= 1;
    ASSERT_TRUE(pair.a.post_send(request));
    pair.run();
    EXPECT_TRUE(pair.lines().empty());
    EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::local_protection});
    EXPECT_EQ(pair.b.state(), QpState::rts);
  }
}

TEST(Refusal, WhatIsBeforeAFailureSucceedsAndWhatIsBehindIsFlushedInOrder) {
  Pair pair;
  pair.write(100);
  SendRequest unsignalled = pair.request(SendOpcode::rdma_write, pair.pinned_a, 100, &pair.pinned_b);
  unsignalled.flags = 0;
  ASSERT_TRUE(pair.a.post_send(unsignalled));
  SendRequest wrong = pair.request(SendOpcode::rdma_write, pair.pinned_a, 100, &pair.pinned_b);
  wrong.rkey ^= 1;
  wrong.flags = 0;
  ASSERT_TRUE(pair.a.post_send(wrong));
  pair.write(100);
  pair.run();
  const auto completions = pair.a.poll_sends();
  ASSERT_EQ(completions.size(), 3U);  // an error also completes an unsignalled request
  EXPECT_EQ(completions[0].wr_id, 1U);
  EXPECT_EQ(completions[1].wr_id, 3U);
  EXPECT_EQ(completions[2].wr_id, 4U);
  EXPECT_EQ(Pair::statuses(completions), (Statuses{CompletionStatus::success, CompletionStatus::remote_access,
                                                   CompletionStatus::work_request_flushed}));
}

TEST(Refusal, PostedToADeadQpIsFlushed) {
  Pair pair;
  transport::QpAttributes attributes;
  attributes.state = QpState::err;
  ASSERT_EQ(pair.a.modify(attributes, transport::kAttrState), 0);
  pair.write(100);
  ASSERT_TRUE(pair.a.post_receive(9, {}));
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::work_request_flushed});
  EXPECT_EQ(Pair::statuses(pair.a.poll_receives()), Statuses{CompletionStatus::work_request_flushed});
  EXPECT_TRUE(pair.lines().empty());
}

}  // namespace
}  // namespace faultline::sim::receiver_not_ready_test
