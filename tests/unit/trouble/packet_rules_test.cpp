// SPDX-License-Identifier: BSD-3-Clause
// Rules about packets and their flows, counters and memory: which events they choose, and what they decide.
#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "pmd_glue/trouble/scenario_file.hpp"
#include "stack/trouble/director.hpp"
#include "stack/trouble/journal.hpp"
#include "tests/unit/trouble/play.hpp"

namespace faultline::trouble::test {
namespace {

struct Choice {
  const char* name;
  const char* when;
  const char* packet;
  const char* peer;
  bool of_qp;
  bool is_chosen;
};

const Choice kChoices[] = {
    {"OutToThePeer", R"(packet = "out *", peer = "198.18.0.1")", "out RC.SEND_ONLY", "198.18.0.1", true,
     true},
    {"OutToAnother", R"(packet = "out *", peer = "198.18.0.1")", "out RC.SEND_ONLY", "198.18.0.11", true,
     false},
    {"InFromThePeer", R"(packet = "in *", peer = "198.18.0.1")", "in RC.ACK", "198.18.0.1", true, true},
    {"InFromAnother", R"(packet = "in *", peer = "198.18.0.1")", "in RC.ACK", "198.18.0.2", true, false},
    {"OtherDirection", R"(packet = "in *", peer = "198.18.0.1")", "out RC.ACK", "198.18.0.1", true, false},
    {"CmOut", R"(packet = "out CM.*", peer = "198.18.0.1")", "out CM.REQ", "198.18.0.1", false, true},
    {"CmIn", R"(packet = "in CM.*", peer = "198.18.0.1")", "in CM.REP", "198.18.0.1", false, true},
    {"CmOfAnother", R"(packet = "in CM.*", peer = "198.18.0.1")", "in CM.REP", "198.18.0.2", false, false},
    {"PeerAndQp", R"(packet = "out *", peer = "198.18.0.1", qp = 0)", "out RC.ACK", "198.18.0.1", true, true},
    {"PeerAndAnotherQp", R"(packet = "out *", peer = "198.18.0.1", qp = 1)", "out RC.ACK", "198.18.0.1", true,
     false},
    {"Ipv6InAnotherForm", R"(packet = "out *", peer = "FE80:0::1")", "out RC.ACK", "fe80::1", true, true},
    {"Ipv4Mapped", R"(packet = "out *", peer = "::ffff:198.18.0.1")", "out RC.ACK", "198.18.0.1", true, true},
};

class Choices : public ::testing::TestWithParam<Choice> {};

TEST_P(Choices, AreByDirectionPeerAndQp) {
  const Choice& choice = GetParam();
  Play run(rule(choice.when, R"(packet = "lose")"));
  const Object qp = run.qp(5);
  const PacketFate fate = run.packet(choice.packet, choice.of_qp ? qp : run.all(), choice.peer);
  EXPECT_EQ(fate.action != nullptr, choice.is_chosen);
}

INSTANTIATE_TEST_SUITE_P(All, Choices, ::testing::ValuesIn(kChoices),
                         [](const auto& choice) { return std::string(choice.param.name); });

struct Option {
  const char* name;
  const char* action;
  Action expected;
};

const Option kOptions[] = {
    {"Reorder", R"(packet = "reorder", by = 3)", {.kind = Action::Kind::reorder, .amount = 3}},
    {"Jitter",
     R"(packet = "delay", delay_us = 2, jitter_us = 3)",
     {.kind = Action::Kind::delay, .duration_ns = 2'000, .jitter_ns = 3'000}},
    {"Rate",
     R"(packet = "rate", bits_per_second = 1000)",
     {.kind = Action::Kind::rate, .bits_per_second = 1'000, .queue_bytes = 262'144}},
    {"RateOfThePort",
     R"(packet = "rate", bits_per_second = 9, queue_bytes = 7, for_ms = 2, flow = "port")",
     {.kind = Action::Kind::rate,
      .duration_ns = 2'000'000,
      .bits_per_second = 9,
      .queue_bytes = 7,
      .flow = FlowScope::port}},
    {"Partition",
     R"(packet = "partition", for_ms = 4, flow = "peer")",
     {.kind = Action::Kind::partition, .duration_ns = 4'000'000, .flow = FlowScope::peer}},
    {"Slow", R"(packet = "slow", service_us = 5)", {.kind = Action::Kind::slow, .service_ns = 5'000}},
    {"WrongIcrc", R"(packet = "corrupt", icrc = "wrong")", {.kind = Action::Kind::corrupt}},
    {"RightIcrc", R"(packet = "corrupt", icrc = "right")", {.kind = Action::Kind::corrupt_payload}},
    {"Cnp", R"(inject = "cnp")", {.kind = Action::Kind::inject_cnp, .amount = 1}},
    {"Cnps", R"(inject = "cnp", count = 100)", {.kind = Action::Kind::inject_cnp, .amount = 100}},
    {"Rnr", R"(inject = "rnr")", {.kind = Action::Kind::inject_rnr, .amount = 12}},
    {"RnrOfTimer", R"(inject = "rnr", timer = 0)", {.kind = Action::Kind::inject_rnr, .amount = 0}},
    {"SequenceNak",
     R"(inject = "nak", syndrome = "psn_sequence")",
     {.kind = Action::Kind::inject_nak, .number = 0}},
    {"InvalidNak",
     R"(inject = "nak", syndrome = "invalid_request")",
     {.kind = Action::Kind::inject_nak, .number = 1}},
    {"AccessNak",
     R"(inject = "nak", syndrome = "remote_access")",
     {.kind = Action::Kind::inject_nak, .number = 2}},
    {"OperationalNak",
     R"(inject = "nak", syndrome = "remote_operational")",
     {.kind = Action::Kind::inject_nak, .number = 3}},
    {"PageOut", R"(memory = "page_out")", {.kind = Action::Kind::page_out}},
};

class Options : public ::testing::TestWithParam<Option> {};

TEST_P(Options, AreRead) {
  const Scenario scenario =
      glue::parse_scenario("illegal = true\n" + rule(R"(packet = "out *")", GetParam().action), "test.toml");
  Action read = scenario.rules.at(0).action;
  EXPECT_FALSE(read.text.empty());
  const Action& expected = GetParam().expected;
  EXPECT_EQ(read.kind, expected.kind);
  EXPECT_EQ(read.number, expected.number);
  EXPECT_EQ(read.duration_ns, expected.duration_ns);
  EXPECT_EQ(read.jitter_ns, expected.jitter_ns);
  EXPECT_EQ(read.amount, expected.amount);
  EXPECT_EQ(read.bits_per_second, expected.bits_per_second);
  EXPECT_EQ(read.queue_bytes, expected.queue_bytes);
  EXPECT_EQ(read.service_ns, expected.service_ns);
  EXPECT_EQ(read.flow, expected.flow);
}

INSTANTIATE_TEST_SUITE_P(All, Options, ::testing::ValuesIn(kOptions),
                         [](const auto& option) { return std::string(option.param.name); });

TEST(PacketRules, JitterDependsOnSeedObjectAndCountAlone) {
  const auto jitters = [](uint64_t seed, uint64_t qpn, bool interleaved) {
    Play run("seed = " + std::to_string(seed) + "\n" +
             rule(R"(packet = "out *")", R"(packet = "delay", delay_us = 5, jitter_us = 10)", "times = 0\n"));
    const Object first = run.qp(5);
    const Object second = run.qp(6);
    std::vector<uint64_t> seen;
    for (int i = 0; i < 100; ++i) {
      if (interleaved) static_cast<void>(run.packet("out RC.ACK", qpn == 5 ? second : first));
      seen.push_back(run.packet("out RC.ACK", qpn == 5 ? first : second).jitter_ns);
    }
    return seen;
  };
  const std::vector<uint64_t> once = jitters(1, 5, false);
  EXPECT_EQ(once, jitters(1, 5, true));
  EXPECT_NE(once, jitters(2, 5, false));
  EXPECT_NE(once, jitters(1, 6, false));
  EXPECT_LE(std::ranges::max(once), 10'000U);
  EXPECT_GT(std::ranges::max(once), 8'000U);
  EXPECT_LT(std::ranges::min(once), 2'000U);
}

TEST(PacketRules, AReplayHasTheSameJitter) {
  const std::string toml = rule(R"(packet = "out *", every = 3)",
                                R"(packet = "delay", delay_us = 5, jitter_us = 10)", "times = 0\n");
  const auto play = [](Play& run) {
    const Object qp = run.qp(5);
    std::vector<uint64_t> seen;
    for (int i = 0; i < 30; ++i) seen.push_back(run.packet("out RC.ACK", qp).jitter_ns);
    return seen;
  };
  Play first("seed = 4\n" + toml);
  const std::vector<uint64_t> seen = play(first);
  std::string journal = header_line(glue::parse_scenario("seed = 4\n" + toml, "t"), "program") + "\n";
  for (const std::string& line : first.lines) journal += line + "\n";
  Scenario replayed;
  ASSERT_EQ(read_journal(journal, replayed), "");
  Play second(replayed);
  EXPECT_EQ(play(second), seen);
}

TEST(PacketRules, APartitionIsOneDecisionAndLosesOneWay) {
  now_ns = 0;
  Play run(rule(R"(packet = "out RC.*", peer = "198.18.0.1", nth = 2)",
                R"(packet = "partition", for_ms = 3, flow = "peer")"));
  const Object qp = run.qp(5);
  EXPECT_FALSE(run.packet("out RC.ACK", qp).passage.is_lost);
  EXPECT_TRUE(run.packet("out RC.ACK", qp).passage.is_lost) << "the packet that begins it, too";
  EXPECT_TRUE(run.packet("out CM.DREQ", run.all()).passage.is_lost);
  EXPECT_FALSE(run.packet("in RC.ACK", qp).passage.is_lost);
  EXPECT_FALSE(run.packet("out RC.ACK", qp, "198.18.0.2").passage.is_lost);
  now_ns = 3'000'000;
  EXPECT_FALSE(run.packet("out RC.ACK", qp).passage.is_lost);
  EXPECT_EQ(run.lines.size(), 1U);
}

TEST(PacketRules, ARateWithoutLimitOfTimesIsOneDecisionForEachFlow) {
  now_ns = 0;
  Play run(rule(R"(packet = "in *")", R"(packet = "rate", bits_per_second = 8000000)", "times = 0\n"));
  const Object first = run.qp(5);
  const Object second = run.qp(6);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run.packet("in RC.ACK", first).passage.delay_ns, 1'000'000U * static_cast<uint64_t>(i));
    EXPECT_EQ(run.packet("in RC.ACK", second).passage.delay_ns, 1'000'000U * static_cast<uint64_t>(i));
  }
  EXPECT_EQ(run.lines.size(), 2U);
}

TEST(PacketRules, AnAnswerIsForRequestsOfKnownQps) {
  Play run(rule(R"(packet = "out *")", R"(inject = "rnr")"));
  const Object qp = run.qp(5);
  EXPECT_EQ(run.packet("out RC.ACK", qp, "198.18.0.1", false).action, nullptr);
  EXPECT_EQ(run.packet("out RC.SEND_ONLY", run.all(), "198.18.0.1", true).action, nullptr);
  EXPECT_TRUE(run.lines.empty());
  EXPECT_NE(run.packet("out RC.SEND_ONLY", qp, "198.18.0.1", true).action, nullptr);
  EXPECT_TRUE(run.director.may_inject());
}

TEST(PacketRules, ACounterHoldsOnceItIsReachedOnTheEventsDevice) {
  Play run(rule(R"(packet = "out *", counter = "transport.timeouts", least = 3)", R"(packet = "lose")",
                "times = 0\n"));
  EXPECT_EQ(run.director.counter_names(), std::vector<std::string>{"transport.timeouts"});
  const uint32_t other = run.director.device("dev1");
  std::map<std::string, uint64_t> values{{"transport.timeouts", 2}, {"odp.num_page_faults", 9}};
  const auto is_lost = [&](uint32_t device) {
    return run.packet("out RC.ACK", {ObjectKind::device, device, 0}).action != nullptr;
  };
  EXPECT_FALSE(is_lost(run.device)) << "no reader yet";
  run.director.set_counter_reader(run.device, [&](const std::string& name) { return values[name]; });
  EXPECT_FALSE(is_lost(run.device));
  values["transport.timeouts"] = 3;
  EXPECT_FALSE(is_lost(other));
  EXPECT_TRUE(is_lost(run.device));
  values["transport.timeouts"] = 0;
  EXPECT_TRUE(is_lost(run.device)) << "it has been reached";
  run.director.set_counter_reader(run.device, {});
  EXPECT_TRUE(is_lost(run.device));
}

TEST(PacketRules, APageOutNamesTheRegionOfItsEvent) {
  Play run(rule(R"(any = [ { packet = "in RC.WRITE*" }, { fault = "*" }, { send = "*" } ])",
                R"(memory = "page_out")", "times = 0\n"));
  const Object qp = run.qp(5);
  EXPECT_EQ(run.packet("in RC.WRITE_MIDDLE", qp).action, nullptr);
  EXPECT_TRUE(run.lines.empty()) << "an event without a region";
  static_cast<void>(run.director.decide(
      {.kind = EventKind::fault, .name = {}, .object = run.all(), .region = 0x77, .va = 0x5000}));
  static_cast<void>(run.director.decide(
      {.kind = EventKind::send, .name = "SEND", .object = qp, .region = 0x78, .va = 0x6000}));
  std::vector<Pending> pending(4);
  pending.resize(run.director.take_pending(
      run.device, [](const Pending&) { return true; }, pending));
  ASSERT_EQ(pending.size(), 2U);
  EXPECT_EQ(pending[0].kind, Action::Kind::page_out);
  EXPECT_EQ(pending[0].handle, 0x77U);
  EXPECT_EQ(pending[0].va, 0x5000U);
  EXPECT_EQ(pending[1].handle, 0x78U);
  EXPECT_EQ(run.lines.size(), 2U);
}

}  // namespace
}  // namespace faultline::trouble::test
