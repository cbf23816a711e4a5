// SPDX-License-Identifier: BSD-3-Clause
// Losses between two ends with selective acknowledgements, and the early probe.
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::selective_acknowledgement_test {
namespace {

using transport::CompletionStatus;

constexpr uint64_t bit(unsigned packet) {
  return uint64_t{1} << packet;
}

uint64_t drops_of(const transport::CoreCounters& counters, transport::DropReason reason) {
  return counters.drops[static_cast<size_t>(reason)];
}

TEST(Selective, OnlyTheLostPacketGoesOutAgain) {
  SimulationScript script = selective_fabric();
  script.a_to_b.drop_mask = bit(1);
  Pair pair(script);
  pair.write(8192);
  pair.run();
  EXPECT_EQ(pair.counters_a().retransmitted_packets, 1U);
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
  EXPECT_EQ(pair.counters_a().probes_sent, 0U);
  EXPECT_EQ(pair.counters_b().naks_sent, 0U);
  EXPECT_EQ(pair.counters_b().packets_held, 6U);
  EXPECT_EQ(drops_of(pair.counters_b(), transport::DropReason::out_of_sequence), 0U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 8192));
}

TEST(Selective, ALostRetransmissionIsNoticedByWhatCameAfterIt) {
  SimulationScript script = selective_fabric();
  script.a_to_b.picoseconds_per_byte = 800;
  script.a_to_b.delay_ns = script.b_to_a.delay_ns = 2 * kMicrosecond;
  script.a_to_b.drop_mask = bit(1) | bit(10);  // the tenth is the retransmission of the first
  Pair pair(script);
  pair.write(40960);
  pair.run();
  const auto& entries = pair.simulation.trace.entries();
  EXPECT_GE(entries.size(), 42U);
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 40960)) << pair.simulation.trace.text(60);
}

TEST(Selective, ReorderingByTwoCostsNothing) {
  SimulationScript script = selective_fabric();
  script.a_to_b.picoseconds_per_byte = 1000;
  script.a_to_b.late_mask = bit(3);
  script.a_to_b.late_ns = 2 * kMicrosecond;  // a packet takes about 1 us
  Pair pair(script);
  pair.write(16384);
  pair.run();
  EXPECT_GT(pair.counters_b().packets_held, 0U);
  EXPECT_EQ(pair.counters_a().retransmitted_packets, 0U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 16384));
}

TEST(Selective, ALostTailIsAskedForByTheProbeNotTheTimeOut) {
  SimulationScript script = selective_fabric();
  script.a_to_b.drop_mask = bit(6) | bit(7);
  Pair pair(script);
  pair.write(8192);
  pair.run();
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
  EXPECT_GE(pair.counters_a().probes_sent, 1U);
  EXPECT_LT(pair.simulation.now(), uint64_t{4096} << 14);
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), (Statuses{CompletionStatus::success}));
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 8192));
}

TEST(Selective, APeerThatDoesNotUnderstandIsSentASequenceNak) {
  SimulationScript script = selective_fabric();
  script.a.core.selective_ack = false;
  script.a_to_b.drop_mask = bit(1);
  Pair pair(script);
  pair.write(8192);
  pair.run();
  EXPECT_EQ(pair.counters_b().selective_acks_sent, 0U);
  EXPECT_EQ(pair.counters_b().packets_held, 0U);
  EXPECT_EQ(pair.counters_b().naks_sent, 1U);
  EXPECT_EQ(pair.counters_a().retransmitted_packets, 7U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 8192));
}

TEST(Selective, WhatWasHeldStaysWhenNoReceiveIsPosted) {
  SimulationScript script = selective_fabric();
  script.a_to_b.drop_mask = bit(0);
  Pair pair(script);
  pair.write(100);
  pair.send(100);
  pair.send(100);
  pair.send(100);
  pair.simulation.at(pair.simulation.now() + 300 * kMicrosecond, [&] {
    pair.receive(100);
    pair.receive(100);
    pair.receive(100);
  });
  pair.run();
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
  EXPECT_EQ(pair.a.poll_sends().size(), 4U);
  EXPECT_EQ(pair.b.poll_receives().size(), 3U);
}

TEST(Selective, AFaultLongerThanTheParkDeadlineCostsOnePacketNotAWindow) {
  SimulationScript script = selective_fabric();
  script.b.memory.resolve_min_ns = script.b.memory.resolve_max_ns = 8 * kMillisecond;
  Pair pair(script);
  EXPECT_TRUE(
      pair.a.post_send(pair.request(transport::SendOpcode::rdma_write, pair.pinned_a, 32768, &pair.paged_b)));
  pair.run();
  EXPECT_GE(pair.counters_b().rnr_naks_sent, 1U);
  EXPECT_LE(pair.counters_a().retransmitted_packets, 2 * pair.counters_b().rnr_naks_sent);
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.paged_b, 32768));
}

TEST(Selective, HeldPacketsOfADeadRequesterAreGivenBack) {
  SimulationScript script = selective_fabric();
  script.a_to_b.drop_mask = bit(0);
  script.b_to_a.dead_from_ns = 0;
  script.a_to_b.dead_from_ns = 20 * kMicrosecond;
  ConnectionScript connection;
  Pair pair(script, connection);
  pair.write(8192);
  pair.run();
  EXPECT_GT(pair.counters_b().packets_held, 0U);
  EXPECT_EQ(pair.simulation.b.port.rx_in_use(), 0U);
}

TEST(Probe, GoesBackWhereItsAnswerShowsThatAllElseIsLost) {
  SimulationScript script = quiet_fabric();
  script.a.core.early_probe = true;
  script.a_to_b.drop_mask = bit(5) | bit(6) | bit(7);
  Pair pair(script);
  pair.write(8192);
  pair.run();
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
  // the ACK of the first probe shows which packets the peer has
  EXPECT_EQ(pair.counters_a().probes_sent, 2U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 8192));
}

TEST(Probe, LearnsARoundTripLongerThanItsFirstPatience) {
  SimulationScript script = quiet_fabric();
  script.a.core.early_probe = true;
  script.a_to_b.delay_ns = script.b_to_a.delay_ns = 10 * kMillisecond;
  Pair pair(script);
  constexpr uint64_t kMessages = 30;
  for (uint64_t i = 0; i < kMessages; ++i) {
    pair.write(100);
    pair.run();
  }
  EXPECT_EQ(pair.a.poll_sends().size(), kMessages);
  EXPECT_LE(pair.counters_a().probes_sent, 4U);  // from the first few messages
}

}  // namespace
}  // namespace faultline::sim::selective_acknowledgement_test
