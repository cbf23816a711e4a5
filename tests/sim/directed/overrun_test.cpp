// SPDX-License-Identifier: BSD-3-Clause
// A completion that finds its queue full is lost, so the peer must not conclude that its message arrived. The
// QP enters the error state without an acknowledgement (IBA 9.9.3, class G; Linux rxe does the same).
#include <algorithm>

#include "stack/transport/qp/completion_queue.hpp"
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::overrun_test {
namespace {

using transport::AsyncEvent;
using transport::CompletionQueue;
using transport::CompletionStatus;
using transport::QpState;
using transport::QpType;
using transport::SendOpcode;

constexpr uint32_t kRoom = 8;

/// A connection with a small completion queue at one end.
struct Overrun : Pair {
  explicit Overrun(bool at_receiver, QpType type = QpType::rc, bool own_srq = false,
                   const SimulationScript& script = quiet_fabric())
      : Pair(script),
        small(kRoom),
        large(256),
        from(simulation, simulation.a, {.type = type}, at_receiver ? &large : &small),
        to(simulation, simulation.b, {.type = type, .own_srq = own_srq}, at_receiver ? &small : &large) {
    ConnectionScript connection;
    connection.timeout = 8;  // 1 ms
    connection.retry_count = 1;
    EXPECT_TRUE(connect(simulation, from, to, connection));
    simulation.run();
  }
  void send(uint32_t count, SendOpcode opcode) {
    for (uint32_t i = 0; i < count; ++i)
      EXPECT_TRUE(from.post_send(request(opcode, pinned_a, 64, &pinned_b)));
  }
  void receive(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) EXPECT_TRUE(to.post_receive(next_wr_id++, {sge(pinned_b, 64)}));
  }
  static std::vector<AsyncEvent> events_of(const SimHost& host) {
    std::vector<AsyncEvent> all;
    for (const RaisedEvent& raised : host.events) all.push_back(raised.event);
    return all;
  }

  CompletionQueue small, large;
  Endpoint from, to;
};

TEST(Overrun, AReceiverThatLosesACompletionAcknowledgesItNot) {
  Overrun pair(true);
  pair.receive(20);
  pair.send(20, SendOpcode::send);
  pair.run();
  EXPECT_EQ(pair.to.state(), QpState::err);
  const auto received = Endpoint::drain(pair.small);
  EXPECT_EQ(Pair::statuses(received), Statuses(kRoom, CompletionStatus::success));
  // Exactly the received messages are acknowledged.
  Statuses expected(kRoom, CompletionStatus::success);
  expected.push_back(CompletionStatus::retry_exceeded);
  expected.resize(20, CompletionStatus::work_request_flushed);
  EXPECT_EQ(Pair::statuses(Endpoint::drain(pair.large)), expected);
  EXPECT_EQ(Overrun::events_of(pair.simulation.b), std::vector{AsyncEvent::qp_fatal});
  EXPECT_GE(pair.simulation.b.cq_errors, 1U);
  EXPECT_EQ(pair.simulation.b.port.rx_in_use(), 0U);
}

// Packets held after a gap are all executed when the gap closes, up to the message whose completion is lost.
TEST(Overrun, WhatComesBehindTheLostOneIsNotExecuted) {
  SimulationScript script = selective_fabric();
  script.a_to_b.drop_mask = 1;
  Overrun pair(true, QpType::rc, false, script);
  pair.receive(kRoom + 1);
  pair.send(kRoom + 1, SendOpcode::send);
  SendRequest last = pair.request(SendOpcode::rdma_write, pair.pinned_a, 64, &pair.pinned_b);
  last.remote_va += 4096;
  const std::vector<uint8_t> before = pair.pinned_b.bytes;
  EXPECT_TRUE(pair.from.post_send(last));
  pair.run();
  EXPECT_GT(pair.counters_b().packets_held, 0U);
  EXPECT_EQ(pair.to.state(), QpState::err);
  EXPECT_TRUE(std::equal(before.begin() + 4096, before.begin() + 4160, pair.pinned_b.bytes.begin() + 4096));
  EXPECT_EQ(pair.simulation.b.port.rx_in_use(), 0U);
}

TEST(Overrun, ARequesterThatLosesACompletionIsInError) {
  Overrun pair(false);
  pair.send(20, SendOpcode::rdma_write);
  pair.run();
  EXPECT_EQ(pair.from.state(), QpState::err);
  EXPECT_EQ(Pair::statuses(Endpoint::drain(pair.small)), Statuses(kRoom, CompletionStatus::success));
  EXPECT_EQ(Overrun::events_of(pair.simulation.a), std::vector{AsyncEvent::qp_fatal});
  EXPECT_GE(pair.simulation.a.cq_errors, 1U);
  EXPECT_TRUE(pair.from.all_sends_retired());
  // Work requests posted from here on are flushed; the queue has room for them again.
  pair.send(1, SendOpcode::rdma_write);
  pair.run();
  EXPECT_EQ(Pair::statuses(Endpoint::drain(pair.small)), Statuses{CompletionStatus::work_request_flushed});
  EXPECT_EQ(pair.to.state(), QpState::rts) << "the peer has done nothing";
}

TEST(Overrun, ItsSharedQueueIsToldOfTheEnd) {
  Overrun pair(true, QpType::rc, true);
  pair.receive(20);
  pair.send(20, SendOpcode::send);
  pair.run();
  EXPECT_EQ(pair.to.state(), QpState::err);
  EXPECT_EQ(Overrun::events_of(pair.simulation.b),
            (std::vector{AsyncEvent::last_wqe_reached, AsyncEvent::qp_fatal}));
}

TEST(Overrun, AnUnreliableQpIsInErrorAsWell) {
  for (const bool at_receiver : {true, false}) {
    Overrun pair(at_receiver, QpType::uc);
    pair.receive(20);
    pair.send(20, SendOpcode::send);
    pair.run();
    EXPECT_EQ((at_receiver ? pair.to : pair.from).state(), QpState::err);
    EXPECT_EQ(Pair::statuses(Endpoint::drain(pair.small)), Statuses(kRoom, CompletionStatus::success));
    EXPECT_EQ(Overrun::events_of(at_receiver ? pair.simulation.b : pair.simulation.a),
              std::vector{AsyncEvent::qp_fatal});
  }
}

TEST(Overrun, ADatagramsQpIsInErrorAsWell) {
  for (const bool at_receiver : {true, false}) {
    Pair pair;
    CompletionQueue small(kRoom), large(256);
    Endpoint from(pair.simulation, pair.simulation.a, {.type = QpType::ud}, at_receiver ? &large : &small);
    Endpoint to(pair.simulation, pair.simulation.b, {.type = QpType::ud}, at_receiver ? &small : &large);
    ASSERT_TRUE(activate_datagram(from, 7, 1));
    ASSERT_TRUE(activate_datagram(to, 7, 1));
    for (uint64_t i = 0; i < 20; ++i) {
      ASSERT_TRUE(to.post_receive(i, {Pair::sge(pair.pinned_b, 1000)}));
      SendRequest sent = pair.request(SendOpcode::send, pair.pinned_a, 64);
      sent.ud_qpn = to.qpn();
      sent.ud_qkey = 7;
      sent.av = pair.simulation.path(pair.simulation.a, pair.simulation.b);
      ASSERT_TRUE(from.post_send(sent));
    }
    pair.run();
    EXPECT_EQ((at_receiver ? to : from).state(), QpState::err);
    EXPECT_EQ((at_receiver ? from : to).state(), QpState::rts);
    EXPECT_EQ(Pair::statuses(Endpoint::drain(small)), Statuses(kRoom, CompletionStatus::success));
  }
}

TEST(Overrun, AQueueThatIgnoresItLosesACompletionAndNoMore) {
  Overrun pair(true);
  pair.small.ignores_overrun = true;
  pair.receive(20);
  pair.send(20, SendOpcode::send);
  pair.run();
  EXPECT_EQ(pair.to.state(), QpState::rts);
  EXPECT_EQ(Pair::statuses(Endpoint::drain(pair.large)), Statuses(20, CompletionStatus::success));
  EXPECT_EQ(Endpoint::drain(pair.small).size(), kRoom);
  EXPECT_TRUE(pair.simulation.b.events.empty());
}

}  // namespace
}  // namespace faultline::sim::overrun_test
