// SPDX-License-Identifier: BSD-3-Clause
// Whole simulations of small fabrics with the transport core.
#include "apps/sim/world/world.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <spdlog/fmt/fmt.h>

#include "apps/sim/description/generators.hpp"
#include "apps/sim/report/summary.hpp"

namespace faultline::fabric {
namespace {

using transport::CongestionAlgorithm;

Description small_fabric(CongestionAlgorithm algorithm = CongestionAlgorithm::none) {
  Description description;
  description.topology = make_leaf_spine(4, 2, 4, {}, {});
  description.duration_ns = 1'000'000'000;
  description.congestion.algorithm = algorithm;
  description.congestion.dcqcn.line_bytes_per_s = 1'250'000'000;
  description.switches.marks = true;
  description.switches.kmin_bytes = 20'000;
  description.switches.kmax_bytes = 100'000;
  description.switches.pmax = 0.1;
  description.traffic.messages = 4;
  description.traffic.connections = 2;
  return description;
}

Description incast_of_8(CongestionAlgorithm algorithm) {
  Description description = small_fabric(algorithm);
  description.traffic.pattern = PatternKind::incast;
  description.traffic.senders = 8;
  description.traffic.connections = 1;
  description.traffic.messages = 0;
  description.duration_ns = 20'000'000;
  return description;
}

/// Everything that a run yields, as text.
std::string trace_of(const Description& description) {
  World world(description);
  world.run();
  std::string text = json_of(summarize(world)).dump();
  for (const Flow& flow : world.flows())
    text += fmt::format("\n{} {} {} {}", flow.start_ns, flow.end_ns, flow.connection, flow.retransmits);
  for (const QueueSample& sample : world.samples())
    text += fmt::format("\n{} {} {}", sample.time_ns, sample.channel, sample.bytes);
  return text;
}

void expect_conservation(const World& world) {
  const FabricCounters& counters = world.fabric().counters();
  EXPECT_EQ(counters.injected_frames,
            counters.delivered_frames + counters.dropped_frames() + world.fabric().frames_inside());
  EXPECT_EQ(counters.injected_bytes,
            counters.delivered_bytes + counters.dropped_bytes + world.fabric().bytes_inside());
  uint64_t sent = 0, received = 0, sent_bytes = 0;
  for (const auto& host : world.hosts()) {
    sent += host->core().counters().tx_packets;
    sent_bytes += host->core().counters().tx_bytes;
    received += host->core().counters().rx_packets;
  }
  EXPECT_EQ(sent, counters.injected_frames);
  EXPECT_EQ(sent_bytes, counters.injected_bytes);
  EXPECT_LE(received, counters.delivered_frames);
}

uint64_t received_bytes(const World& world) {
  uint64_t bytes = 0;
  for (const auto& host : world.hosts()) bytes += host->received_bytes();
  return bytes;
}

TEST(World, GivesEqualRunsForOneSeedAndOthersForAnother) {
  for (const auto algorithm :
       {CongestionAlgorithm::none, CongestionAlgorithm::dcqcn, CongestionAlgorithm::swift}) {
    Description description = incast_of_8(algorithm);
    description.duration_ns = 3'000'000;
    description.sample_ns = 100'000;
    description.switches.queue_bytes = 100'000;
    const std::string first = trace_of(description);
    EXPECT_GT(std::ranges::count(first, '\n'), 30);
    EXPECT_EQ(first, trace_of(description));
    description.seed = 2;
    EXPECT_NE(first, trace_of(description));
  }
}

class Operations : public testing::TestWithParam<Operation> {};

TEST_P(Operations, DeliverEachByteOnceAlsoAfterLoss) {
  Description description = small_fabric();
  description.traffic.operation = GetParam();
  description.switches.queue_bytes = 60'000;
  World world(description);
  world.run();
  EXPECT_EQ(world.flows().size(), 16U * 2 * 4);
  for (const Flow& flow : world.flows()) EXPECT_EQ(flow.state, FlowState::done);
  EXPECT_GT(world.fabric().counters().full_drops, 0U) << "the test means to lose frames";
  EXPECT_EQ(received_bytes(world), 16U * 2 * 4 * 65'536);
  expect_conservation(world);
}

INSTANTIATE_TEST_SUITE_P(All, Operations,
                         testing::Values(Operation::write, Operation::write_imm, Operation::send,
                                         Operation::read));

TEST(World, KeepsConservationWhileFramesAreUnderWay) {
  Description description = incast_of_8(CongestionAlgorithm::none);
  description.switches.queue_bytes = 100'000;
  for (const TimeNs duration_ns : {50'000, 333'333, 2'000'000}) {
    description.duration_ns = duration_ns;
    World world(description);
    world.run();
    expect_conservation(world);
    EXPECT_GT(world.fabric().frames_inside(), 0U);
    EXPECT_EQ(world.now_ns(), duration_ns);
  }
}

Summary summary_of(const Description& description) {
  World world(description);
  world.run();
  expect_conservation(world);
  return summarize(world);
}

TEST(World, ShortensTheQueueOfAnIncastByEachCongestionControl) {
  const Summary none = summary_of(incast_of_8(CongestionAlgorithm::none));
  const Summary dcqcn = summary_of(incast_of_8(CongestionAlgorithm::dcqcn));
  const Summary swift = summary_of(incast_of_8(CongestionAlgorithm::swift));
  EXPECT_EQ(none.longest_port, "leaf0->h0");
  EXPECT_LT(dcqcn.longest_mean_bytes, none.longest_mean_bytes / 2);
  EXPECT_LT(swift.longest_mean_bytes, none.longest_mean_bytes / 2);
  EXPECT_GT(dcqcn.cnps, 0U);
  for (const Summary* const one : {&none, &dcqcn, &swift})
    EXPECT_GT(one->goodput_gbps, 7.0) << one->algorithm;
}

TEST(World, LosesNothingWithPfc) {
  Description description = incast_of_8(CongestionAlgorithm::none);
  description.switches.pauses = true;
  description.switches.pause_on_bytes = 50'000;
  description.switches.pause_off_bytes = 30'000;
  const Summary summary = summary_of(description);
  EXPECT_EQ(summary.fabric.dropped_frames(), 0U);
  EXPECT_EQ(summary.retransmits, 0U);
  EXPECT_GT(summary.fabric.pauses, 0U);
  EXPECT_GT(summary.goodput_gbps, 9.0);
}

TEST(World, CompletesFlowsAcrossAFailedLink) {
  Description description = small_fabric();
  description.switches.reroute_ns = 100'000;
  const auto& links = description.topology.links;
  for (uint32_t i = 0; i < links.size(); ++i)
    if (!description.topology.is_host(links[i].a) && i % 2 == 0)
      description.failures.push_back({.link = i, .down_ns = 100'000, .up_ns = kNever});
  const Summary summary = summary_of(description);
  EXPECT_EQ(summary.flows_done, summary.flows);
  EXPECT_GT(summary.fabric.failure_drops, 0U);
}

TEST(World, FailsFlowsOfAHostThatNothingReaches) {
  Description description = small_fabric();
  description.host.timeout = 9;
  description.host.retry_count = 2;
  description.failures.push_back({.link = 3, .down_ns = 50'000, .up_ns = kNever});
  World world(description);
  world.run();
  for (const Flow& flow : world.flows()) {
    const Route& route = world.routes()[flow.connection];
    const bool is_cut = route.source == 3 || route.destination == 3;
    if (!is_cut) {
      EXPECT_EQ(flow.state, FlowState::done);
    } else if (flow.start_ns > 50'000) {
      EXPECT_EQ(flow.state, FlowState::failed);
    }
  }
  EXPECT_GT(summarize(world).flows_failed, 0U);
}

TEST(World, EndsAnAllreduceWhenAllHostsHaveTheResult) {
  for (const auto pattern : {PatternKind::ring_allreduce, PatternKind::tree_allreduce}) {
    Description description = small_fabric(CongestionAlgorithm::dcqcn);
    description.traffic.pattern = pattern;
    description.traffic.operation = Operation::write_imm;
    description.traffic.message_bytes = 1'000'000;
    description.traffic.messages = 2;
    World world(description);
    world.run();
    EXPECT_EQ(world.rounds(), 2U);
    const Summary summary = summarize(world);
    EXPECT_EQ(summary.flows_done, summary.flows);
    EXPECT_LT(world.now_ns(), description.duration_ns);
  }
}

TEST(World, CountsTheRetransmissionsOfAFlow) {
  Description description = small_fabric();
  description.switches.queue_bytes = 60'000;
  World world(description);
  world.run();
  uint64_t of_flows = 0;
  for (const Flow& flow : world.flows()) of_flows += flow.retransmits;
  EXPECT_EQ(of_flows, summarize(world).retransmits);
  EXPECT_GT(of_flows, 0U);
}

}  // namespace
}  // namespace faultline::fabric
