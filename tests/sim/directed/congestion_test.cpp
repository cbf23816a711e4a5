// SPDX-License-Identifier: BSD-3-Clause
// ECN marks, congestion notifications (CNPs) and their effect, as packet traces; and streams that share a
// bottleneck.
#include <cmath>

#include "stack/transport/qp/queue_pair.hpp"
#include "stack/transport/qp/snapshot.hpp"
#include "stack/wire/packet/ecn.hpp"
#include "tests/sim/directed/pair.hpp"
#include "tests/sim/flows/streams.hpp"

namespace faultline::sim::congestion_test {
namespace {

using transport::CongestionAlgorithm;

SimulationScript marking_fabric() {
  SimulationScript script = quiet_fabric();
  script.a.core.congestion.algorithm = script.b.core.congestion.algorithm = CongestionAlgorithm::dcqcn;
  script.a_to_b.bottleneck_picoseconds_per_byte = 800;
  script.a_to_b.queue_limit_bytes = 1 << 20;
  script.a_to_b.mark_from_bytes = script.a_to_b.mark_all_bytes = 4'000;
  return script;
}

TEST(Congestion, SendersSayThatTheyHeedMarksOnlyWhereTheyDo) {
  for (const bool heeds : {false, true}) {
    SimulationScript script = quiet_fabric();
    if (heeds) script.a.core.congestion.algorithm = CongestionAlgorithm::dcqcn;
    Pair pair(script);
    pair.write(100);
    pair.run();
    wire::Packet packet;
    ASSERT_EQ(wire::parse(pair.simulation.trace.entries().at(0).frame, packet), wire::ParseError::none);
    EXPECT_EQ(packet.ecn, heeds ? wire::kEcnCapable : 0);
  }
}

// Found by the seed search (seed 1586): a retransmission delayed by pacing must not count as unanswered.
TEST(Congestion, WhatWaitsForItsPaceUsesUpNoRetry) {
  SimulationScript script = quiet_fabric();
  script.a.core.congestion.algorithm = CongestionAlgorithm::swift;
  auto& swift = script.a.core.congestion.swift;
  swift.initial_window_packets = swift.min_window_packets = swift.max_window_packets = 1e-5;
  swift.min_bytes_per_s = 1;
  script.a_to_b.drop_mask = 0b110;
  ConnectionScript connection;
  connection.timeout = 8;  // 1 ms; pacing releases a packet only after some hundred ms
  connection.retry_count = 3;
  Pair pair(script, connection);
  pair.write(1024);
  pair.run();
  pair.write(1024);
  pair.run();
  EXPECT_EQ(pair.a.poll_sends().size(), 2U);
  EXPECT_EQ(pair.counters_a().timeouts, 2U);
  EXPECT_EQ(pair.a.state(), transport::QpState::rts);
}

/// Swift with a window that stays as it is, far below the configured one.
SimulationScript fixed_window(double packets) {
  SimulationScript script = quiet_fabric();
  script.a.core.congestion.algorithm = CongestionAlgorithm::swift;
  auto& swift = script.a.core.congestion.swift;
  swift.initial_window_packets = swift.min_window_packets = swift.max_window_packets = packets;
  return script;
}

/// Returns the most PSNs of a that were sent, or requested from b, and not acknowledged at the time. Each
/// packet takes 1 us.
int32_t most_in_flight(const Trace& trace) {
  struct Acknowledgement {
    uint64_t arrives_ns;
    wire::Psn psn;
  };
  std::vector<Acknowledgement> acknowledged;
  for (const TraceEntry& entry : trace.entries()) {
    wire::Packet packet;
    EXPECT_EQ(wire::parse(entry.frame, packet), wire::ParseError::none);
    if (!entry.from_a() && entry.verdict == Verdict::delivered)
      acknowledged.push_back({entry.sent_ns + kMicrosecond, packet.bth.psn});
  }
  int32_t most = 0;
  wire::Psn unacked(ConnectionScript{}.psn_a);
  size_t next = 0;
  for (const TraceEntry& entry : trace.entries()) {
    if (!entry.from_a()) continue;
    while (next != acknowledged.size() && acknowledged[next].arrives_ns <= entry.sent_ns)
      unacked = acknowledged[next++].psn.next();
    wire::Packet packet;
    EXPECT_EQ(wire::parse(entry.frame, packet), wire::ParseError::none);
    const bool read = packet.info->operation == wire::Operation::read_request;
    const uint32_t psns = read ? wire::packets_of(packet.reth().length_bytes, 1024) : 1;
    most = std::max(most, packet.bth.psn.plus(psns).distance_from(unacked));
  }
  return most;
}

TEST(Congestion, HasNoMoreInFlightThanTheWindowRoundedUp) {
  for (const double window : {0.5, 1.0, 2.5, 4.0, 11.0}) {
    const SimulationScript script = fixed_window(window);
    Pair pair(script);
    pair.write(40 * 1024);
    for (int i = 0; i < 20; ++i) pair.write(100);
    pair.write(7 * 1024);
    pair.run();
    EXPECT_EQ(pair.a.poll_sends().size(), 22U);
    EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 40 * 1024));
    const auto bound = static_cast<int32_t>(std::ceil(window));
    EXPECT_EQ(most_in_flight(pair.simulation.trace), bound) << window;
    // What status and recording state: the bound is no cut by losses.
    EXPECT_EQ(transport::window_packets_of(*pair.a.qp(), script.a.core), bound);
    EXPECT_EQ(transport::whole_window_packets_of(*pair.a.qp(), script.a.core), static_cast<uint32_t>(bound));
    EXPECT_EQ(pair.counters_a().timeouts, 0U) << window;
  }
}

TEST(Congestion, StartsAReadWhileTheWindowHasRoomAndWaitsForItsResponses) {
  Pair pair(fixed_window(4));
  for (int i = 0; i < 3; ++i) pair.read(3 * 1024);
  for (int i = 0; i < 8; ++i) pair.read(1024);
  pair.write(6 * 1024);
  pair.run();
  EXPECT_EQ(pair.a.poll_sends().size(), 12U);
  EXPECT_EQ(most_in_flight(pair.simulation.trace), 6) << "three of four, and three more";
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
}

TEST(Congestion, LossesWithinTheBoundAreRepaired) {
  for (const bool selective : {false, true}) {
    SimulationScript script = fixed_window(5);
    script.a.core.selective_ack = script.b.core.selective_ack = selective;
    script.a_to_b.drop_mask = 0b1011'0000'1110'0100;
    script.b_to_a.drop_mask = 0b10110;
    Pair pair(script);
    pair.write(30 * 1024);
    for (int i = 0; i < 4; ++i) pair.read(4 * 1024);
    pair.write(30 * 1024);
    pair.run();
    EXPECT_EQ(pair.a.poll_sends().size(), 6U) << selective;
    EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 30 * 1024));
    EXPECT_EQ(pair.a.state(), transport::QpState::rts);
  }
}

// The packets before the page that misses do not request the acknowledgement that would open the window.
TEST(Congestion, AWindowThatShrinksBelowWhatWasSentStillOpens) {
  SimulationScript script = fixed_window(16);
  auto& swift = script.a.core.congestion.swift;
  swift.target_delay_ns = 1;
  swift.scaling_range_ns = 0;
  swift.beta = swift.max_decrease = 0.99;
  swift.min_window_packets = 0.5;
  script.a_to_b.picoseconds_per_byte = 1'000;  // b acknowledges a packet before the next one arrives
  ConnectionScript connection;
  connection.timeout = 0;  // a QP that waits for nothing stays so
  Pair pair(script, connection);
  SendRequest request =
      pair.request(transport::SendOpcode::rdma_write, pair.pinned_a, 6 * 1024, &pair.pinned_b);
  request.sges.push_back(Pair::sge(pair.paged_a, 10 * 1024));
  EXPECT_TRUE(pair.a.post_send(request));
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{transport::CompletionStatus::success});
  EXPECT_EQ(pair.counters_a().retransmitted_packets, 0U);
}

TEST(Congestion, AMarkedPacketIsAnsweredByOneNotificationAnInterval) {
  Pair pair(marking_fabric());
  for (int i = 0; i < 8; ++i) pair.write(60'000);
  pair.run();
  const auto b = pair.counters_b();
  EXPECT_GT(b.ecn_marked_received, 10U);
  EXPECT_GE(b.cnps_sent, 1U);
  EXPECT_LE(b.cnps_sent, 1 + (pair.simulation.now() - 1'000) / 50'000);
  EXPECT_EQ(pair.counters_a().cnps_received, b.cnps_sent);
  EXPECT_GT(pair.counters_a().pacing_waits, 0U);
  EXPECT_EQ(pair.a.poll_sends().size(), 8U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 60'000));
}

TEST(Congestion, ForgedOrStrayNotificationsSlowNobodyDown) {
  SimulationScript script = quiet_fabric();
  script.a.core.congestion.algorithm = CongestionAlgorithm::dcqcn;
  Pair pair(script);
  const auto inject = [&](uint32_t source, bool becn, uint32_t qpn) {
    transport::AddressVector av = pair.simulation.path(pair.simulation.b, pair.simulation.a);
    av.path.source_gid = wire::Gid::from_ipv4(source);
    const wire::FrameTemplate frame_template(av.path);
    wire::PacketFields fields;
    fields.bth.opcode = wire::Opcode::cnp;
    fields.bth.becn = becn;
    fields.bth.destination_qpn = qpn;
    Frame frame(frame_template.frame_bytes(fields.bth.opcode, 0));
    ASSERT_NE(frame_template.write_headers(frame, fields, 0), nullptr);
    frame_template.seal(frame, fields.bth.opcode, 0);
    pair.simulation.b_to_a.inject(pair.simulation.now(), frame);
    pair.run();
  };
  inject(0xc6120009, true, pair.a.qpn());
  inject(0xc6120002, false, pair.a.qpn());
  inject(0xc6120002, true, pair.a.qpn() + 1);
  EXPECT_EQ(pair.counters_a().cnps_received, 0U);
  inject(0xc6120002, true, pair.a.qpn());
  EXPECT_EQ(pair.counters_a().cnps_received, 1U);
}

class Bottleneck : public testing::TestWithParam<CongestionAlgorithm> {};

TEST_P(Bottleneck, IsSharedEvenlyAndItsQueueStaysShort) {
  StreamScript script;
  script.fabric = ten_gigabit_fabric();
  LinkScript& wire = script.fabric.a_to_b;
  wire.picoseconds_per_byte = 200;
  wire.bottleneck_picoseconds_per_byte = 800;
  wire.queue_limit_bytes = 256 << 10;
  wire.mark_from_bytes = 10'000;
  wire.mark_all_bytes = 100'000;
  wire.mark_ratio = 0.1;
  script.fabric.a.core.congestion.algorithm = script.fabric.b.core.congestion.algorithm = GetParam();
  script.streams = 2;
  script.stagger_ns = 2'000'000;
  script.duration_ns = 200'000'000;
  const StreamResult result = run_streams(script);
  EXPECT_EQ(result.error, "");
  EXPECT_GT(result.gigabits_per_s[0], 0.8 * result.gigabits_per_s[1]);
  EXPECT_GT(result.gigabits_per_s[1], 0.8 * result.gigabits_per_s[0]);
  EXPECT_GT(result.total, 8.0) << "of 10 Gb/s";
  EXPECT_LT(result.mean_queue_bytes, (256 << 10) / 2.0);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Bottleneck,
                         testing::Values(CongestionAlgorithm::dcqcn, CongestionAlgorithm::swift),
                         [](const auto& kind) {
                           return kind.param == CongestionAlgorithm::dcqcn ? "Dcqcn" : "Swift";
                         });

TEST(Recovery, OnePercentOfLossLeavesMoreThanSixTenths) {
  const auto goodput = [](double loss, bool selective) {
    StreamScript script;
    script.fabric = ten_gigabit_fabric();
    script.fabric.a_to_b.loss_ratio = script.fabric.b_to_a.loss_ratio = loss;
    script.fabric.a.core.selective_ack = script.fabric.b.core.selective_ack = selective;
    const StreamResult result = run_streams(script);
    EXPECT_EQ(result.error, "");
    return result.total;
  };
  const double whole = goodput(0, true);
  EXPECT_GE(goodput(0.01, true), 0.6 * whole);
  EXPECT_GE(goodput(0.001, true), 0.9 * whole);
  EXPECT_GT(goodput(0.01, true), goodput(0.01, false));
}

}  // namespace
}  // namespace faultline::sim::congestion_test
