// SPDX-License-Identifier: BSD-3-Clause
// Decisions depend on seed, object and count alone; journals of equal runs are equal; a replay repeats them.
#include "stack/trouble/director.hpp"

#include <algorithm>
#include <cerrno>

#include <gtest/gtest.h>

#include "pmd_glue/trouble/scenario_file.hpp"
#include "stack/trouble/journal.hpp"
#include "tests/unit/trouble/play.hpp"

namespace faultline::trouble::test {
namespace {

TEST(Director, TheNthCallFailsOnceForEachRule) {
  Play run(rule(R"(call = "ibv_create_qp", nth = 2)", R"(errno = "ENOMEM")"));
  const Object device{ObjectKind::device, run.device, 0};
  EXPECT_EQ(run.call("ibv_create_qp", device), nullptr);
  EXPECT_EQ(run.call("ibv_create_cq", device), nullptr) << "another call is not counted";
  const Action* const action = run.call("ibv_create_qp", device);
  ASSERT_NE(action, nullptr);
  EXPECT_EQ(action->kind, Action::Kind::fail_call);
  EXPECT_EQ(action->number, static_cast<uint32_t>(ENOMEM));
  EXPECT_EQ(run.call("ibv_create_qp", device), nullptr);
  EXPECT_EQ(
      run.lines,
      std::vector<std::string>{
          R"({"rule":"r","event":"call ibv_create_qp","object":"dev0","n":2,"do":{"errno":"ENOMEM"}})"});
}

TEST(Director, EachObjectHasItsOwnCount) {
  Play run(rule(R"(send = "*", nth = 2)", R"(status = "IBV_WC_REM_ACCESS_ERR")", "times = 0\n"));
  const Object first = run.qp(0x100);
  const Object second = run.qp(0x222);
  EXPECT_EQ(run.send(first), nullptr);
  EXPECT_EQ(run.send(second), nullptr);
  EXPECT_NE(run.send(second), nullptr);
  EXPECT_NE(run.send(first), nullptr);
  EXPECT_EQ(run.lines.size(), 2U);
}

TEST(Director, FiltersBySizeOpcodeAndQp) {
  Play run(rule(R"(send = "RDMA_*", qp = 1, least_bytes = 100, most_bytes = 200)",
                R"(status = "IBV_WC_LOC_PROT_ERR")", "times = 0\n"));
  const Object first = run.qp(5);
  const Object second = run.qp(6);
  EXPECT_EQ(run.send(first, 150, "RDMA_WRITE"), nullptr) << "QP 0";
  EXPECT_EQ(run.send(second, 150, "SEND"), nullptr);
  EXPECT_EQ(run.send(second, 99, "RDMA_WRITE"), nullptr);
  EXPECT_EQ(run.send(second, 201, "RDMA_WRITE"), nullptr);
  EXPECT_NE(run.send(second, 100, "RDMA_WRITE"), nullptr);
  EXPECT_NE(run.send(second, 200, "RDMA_READ"), nullptr);
}

TEST(Director, FromEveryAndTimes) {
  Play run(rule(R"(send = "*", from = 3, every = 2)", R"(status = "IBV_WC_LOC_PROT_ERR")", "times = 2\n"));
  const Object qp = run.qp(5);
  std::string seen;
  for (int i = 1; i <= 10; ++i) seen += run.send(qp) != nullptr ? 'x' : '.';
  EXPECT_EQ(seen, "...x.x....") << "the fourth and the sixth";
}

TEST(Director, AnyAllSinceAndAfter) {
  now_ns = 0;
  Play run(R"([[rule]]
name = "first"
when = { any = [ { send = "SEND", nth = 3 }, { call = "ibv_modify_qp" } ] }
do = { link = "down", for_ms = 5 }
[[rule]]
name = "second"
when = { send = "*", after = "first", since_ms = 10 }
do = { status = "IBV_WC_GENERAL_ERR" }
)");
  const Object qp = run.qp(5);
  EXPECT_EQ(run.send(qp), nullptr);
  EXPECT_FALSE(run.director.is_link_down(run.device));
  EXPECT_EQ(run.call("ibv_modify_qp", qp), nullptr) << "the call itself proceeds";
  EXPECT_TRUE(run.director.is_link_down(run.device));
  EXPECT_FALSE(run.director.is_link_down(run.director.device("dev1"))) << "the link of that device alone";
  now_ns = 4'999'999;
  EXPECT_TRUE(run.director.is_link_down(run.device));
  EXPECT_EQ(run.send(qp), nullptr) << "10 ms are not over";
  now_ns = 5'000'000;
  EXPECT_FALSE(run.director.is_link_down(run.device));
  now_ns = 10'000'000;
  EXPECT_NE(run.send(qp), nullptr);
  EXPECT_EQ(run.lines.size(), 2U);
}

TEST(Director, AReleaseFailsWithIllegalAlone) {
  const std::string every = rule(R"(call = "ibv_de*")", R"(errno = "EIO")", "times = 0\n");
  Play legal(every);
  Play illegal("illegal = true\n" + every);
  for (const char* const call : {"ibv_destroy_qp", "ibv_dealloc_pd", "ibv_dereg_mr"}) {
    EXPECT_EQ(legal.call(call, {ObjectKind::device, legal.device, 0}), nullptr) << call;
    EXPECT_NE(illegal.call(call, {ObjectKind::device, illegal.device, 0}), nullptr) << call;
  }
}

TEST(Director, BeforeATimeAndBeforeARule) {
  now_ns = 0;
  Play run(R"([[rule]]
name = "early"
when = { send = "*", before_ms = 10 }
do = { status = "IBV_WC_GENERAL_ERR" }
times = 0
[[rule]]
name = "not yet"
when = { call = "ibv_modify_qp", before = "end" }
do = { errno = "EIO" }
times = 0
[[rule]]
name = "end"
when = { call = "ibv_create_cq" }
do = { link = "up" }
)");
  const Object qp = run.qp(5);
  now_ns = 9'999'999;
  EXPECT_NE(run.send(qp), nullptr);
  now_ns = 10'000'000;
  EXPECT_EQ(run.send(qp), nullptr);
  EXPECT_NE(run.call("ibv_modify_qp", qp), nullptr);
  EXPECT_NE(run.call("ibv_modify_qp", qp), nullptr);
  EXPECT_EQ(run.call("ibv_create_cq", {ObjectKind::device, run.device, 0}), nullptr);
  EXPECT_EQ(run.call("ibv_modify_qp", qp), nullptr);
}

TEST(Director, ALinkWithoutATimeIsDownUntilItIsUp) {
  now_ns = 0;
  Play run(rule(R"(call = "ibv_open_device")", R"(link = "down")") + "[[rule]]\nwhen = { send = \"*\" }\n" +
           "do = { link = \"up\" }\n");
  static_cast<void>(run.call("ibv_open_device", {ObjectKind::device, run.device, 0}));
  now_ns = 1'000'000'000'000'000;
  EXPECT_TRUE(run.director.is_link_down(run.device));
  EXPECT_TRUE(run.director.may_take_link_down());
  static_cast<void>(run.send(run.qp(5)));
  EXPECT_FALSE(run.director.is_link_down(run.device));
}

TEST(Director, ActionsOnQueuesNeedAnEventThatConcernsOne) {
  Play run(rule(R"(send = "*")", R"(wake = "spurious")", "times = 2\n"));
  EXPECT_EQ(run.send(run.qp(5)), nullptr);
  EXPECT_TRUE(run.lines.empty()) << "no queue is concerned";
  std::vector<const Action*> effects;
  const Event event{.kind = EventKind::send,
                    .name = "SEND",
                    .object = run.qp(5),
                    .thread = 1,
                    .concerns = kConcernsCq,
                    .effects = &effects};
  EXPECT_EQ(run.director.decide(event), nullptr) << "the send itself proceeds";
  ASSERT_EQ(effects.size(), 1U);
  EXPECT_EQ(effects[0]->kind, Action::Kind::wake);
  EXPECT_EQ(run.lines.size(), 1U);
}

TEST(Director, ADeviceThatIsGoneStaysGone) {
  Play run(rule(R"(send = "*")", R"(device = "gone")", "times = 0\n"));
  EXPECT_FALSE(run.director.is_gone(run.device));
  static_cast<void>(run.send(run.qp(5)));
  EXPECT_TRUE(run.director.is_gone(run.device));
  EXPECT_TRUE(run.director.is_link_down(run.device));
  EXPECT_FALSE(run.director.is_gone(run.director.device("dev1")));
  static_cast<void>(run.send(run.qp(5)));
  const auto pending = run.pending();
  ASSERT_EQ(pending.size(), 1U) << "IBV_EVENT_DEVICE_FATAL once";
  EXPECT_EQ(pending[0].kind, Action::Kind::raise_event);
  EXPECT_EQ(pending[0].number, 8U);
}

TEST(Director, ProbabilityDependsOnSeedObjectAndCountAlone) {
  const auto decisions = [](uint64_t seed, bool interleaved) {
    Play run("seed = " + std::to_string(seed) + "\n" +
             rule(R"(send = "*")", R"(status = "IBV_WC_GENERAL_ERR")", "times = 0\nprobability = 0.3\n"));
    const Object qp = run.qp(5);
    const Object other = run.qp(6);
    std::string seen;
    for (int i = 0; i < 1000; ++i) {
      if (interleaved) static_cast<void>(run.send(other));
      seen += run.send(qp) != nullptr ? 'x' : '.';
    }
    return seen;
  };
  const std::string once = decisions(1, false);
  EXPECT_EQ(once, decisions(1, false));
  EXPECT_EQ(once, decisions(1, true)) << "another object's events shift no draw";
  EXPECT_NE(once, decisions(2, false));
  const auto hits = std::ranges::count(once, 'x');
  EXPECT_GT(hits, 240);
  EXPECT_LT(hits, 360);
}

TEST(Director, AJournalRepeatsTheDecisionsAndNoOthers) {
  const std::string toml =
      rule(R"(send = "*")", R"(status = "IBV_WC_GENERAL_ERR")", "times = 0\nprobability = 0.2\n");
  const auto play = [](Play& run) {
    const Object qp = run.qp(5);
    std::string seen;
    for (int i = 0; i < 100; ++i) seen += run.send(qp) != nullptr ? 'x' : '.';
    return seen;
  };
  Play first(toml);
  const std::string seen = play(first);
  std::string journal = header_line(glue::parse_scenario(toml, "t"), "program") + "\n";
  for (const std::string& line : first.lines) journal += line + "\n";
  Scenario replayed;
  ASSERT_EQ(read_journal(journal, replayed), "");
  Play second(replayed);
  EXPECT_EQ(play(second), seen);
  EXPECT_EQ(second.lines, first.lines);
  // Without its last line, that decision is not made.
  journal.erase(journal.rfind('\n', journal.size() - 2) + 1);
  ASSERT_EQ(read_journal(journal, replayed), "");
  Play shorter(replayed);
  EXPECT_EQ(std::ranges::count(play(shorter), 'x'), std::ranges::count(seen, 'x') - 1);
}

TEST(Director, ARuleAtAnExactPlaceIsALineOfTheJournal) {
  Play run(rule(R"(at = "send SEND", object = "dev0 qp 0", n = 2)", R"(status = "IBV_WC_GENERAL_ERR")"));
  const Object qp = run.qp(5);
  EXPECT_EQ(run.send(qp), nullptr);
  EXPECT_NE(run.send(qp), nullptr);
  EXPECT_EQ(run.send(qp), nullptr);
}

TEST(Director, PendingActionsNameTheQpByItsNumber) {
  Play run(rule(R"(send = "*", nth = 1)", R"(qp = "error")"));
  static_cast<void>(run.call("ibv_reg_mr", {ObjectKind::device, run.device, 0}));
  EXPECT_FALSE(run.director.has_pending());
  const Object qp = run.qp(0xabc);
  EXPECT_EQ(run.send(qp), nullptr) << "the send itself proceeds";
  ASSERT_TRUE(run.director.has_pending());
  const auto pending = run.pending();
  ASSERT_EQ(pending.size(), 1U);
  EXPECT_EQ(pending[0].handle, 0xabcU);
  EXPECT_EQ(pending[0].kind, Action::Kind::fail_qp);
  EXPECT_FALSE(run.director.has_pending());
}

TEST(Director, ADestroyedObjectsNumberIsNotUsedAgain) {
  Play run(rule(R"(send = "*", nth = 9)", R"(status = "IBV_WC_GENERAL_ERR")"));
  EXPECT_EQ(run.director.text_of(run.qp(5)), "dev0 qp 0");
  run.director.forget(ObjectKind::qp, run.device, 5);
  EXPECT_EQ(run.director.text_of(run.qp(5)), "dev0 qp 1");
  EXPECT_EQ(run.director.known_object(ObjectKind::qp, run.device, 77).kind, ObjectKind::device);
}

TEST(Director, ACommandIsAnEventOfEachDevice) {
  Play run(rule(R"(command = "flap", device = "dev1")", R"(link = "down", for_ms = 5)"));
  const uint32_t other = run.director.device("dev1");
  EXPECT_EQ(run.director.commands(), std::vector<std::string>{"flap"});
  EXPECT_FALSE(run.director.command("flop", true)) << "no rule waits for it";
  EXPECT_TRUE(run.lines.empty());
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(run.director.command("flap", true));
    EXPECT_FALSE(run.director.is_link_down(run.device));
    EXPECT_TRUE(run.director.is_link_down(other));
    now_ns += 5'000'000;
    EXPECT_FALSE(run.director.is_link_down(other));
  }
  EXPECT_EQ(run.lines.size(), 2U) << "once for each time that it is given";
}

TEST(Director, ACommandIsAStateBesideAnotherEvent) {
  Play run(rule(R"(call = "ibv_reg_mr", command = "full")", R"(errno = "ENOMEM")", "times = 2\n"));
  const Object device{ObjectKind::device, run.device, 0};
  const auto refused = [&] { return run.call("ibv_reg_mr", device) != nullptr; };
  EXPECT_FALSE(refused());
  ASSERT_TRUE(run.director.command("full", true));
  EXPECT_FALSE(run.call("ibv_create_cq", device));
  EXPECT_TRUE(refused() && refused());
  EXPECT_FALSE(refused()) << "twice";
  ASSERT_TRUE(run.director.command("full", true));
  EXPECT_TRUE(refused()) << "a new command, twice again";
  ASSERT_TRUE(run.director.command("full", false));
  EXPECT_FALSE(refused()) << "the command has ended";
}

TEST(Director, ConcernsTheKindsOfItsRules) {
  Play run(rule(R"(packet = "out RC.*")", R"(packet = "lose")"));
  EXPECT_TRUE(run.director.concerns(EventKind::packet));
  EXPECT_FALSE(run.director.concerns(EventKind::fault));
  EXPECT_FALSE(run.director.may_take_link_down());
  Play link(rule(R"(since_ms = 1)", R"(link = "down", for_ms = 1)"));
  EXPECT_TRUE(link.director.may_take_link_down());
}

const Action* poll(Play& run, const Object& cq, uint64_t completions, bool of_several, uint64_t& choice) {
  return run.director.decide({.kind = EventKind::poll,
                              .name = {},
                              .object = cq,
                              .concerns = of_several ? uint8_t{kConcernsQueues} : uint8_t{0},
                              .completions = completions,
                              .choice = &choice});
}

TEST(Director, APollIsCutOrShuffledOnlyIfThatHasAnEffect) {
  Play run(rule(R"(poll = "*")", R"(poll = "few", most = 3)") +
           "[[rule]]\nwhen = { poll = \"*\" }\ndo = { poll = \"shuffle\" }\ntimes = 0\n");
  const Object cq = run.director.object(ObjectKind::cq, run.device, 1);
  uint64_t choice = 0;
  EXPECT_EQ(poll(run, cq, 3, false, choice), nullptr) << "no more than the most, of one work queue";
  const Action* const shuffle = poll(run, cq, 3, true, choice);
  ASSERT_NE(shuffle, nullptr);
  EXPECT_EQ(shuffle->kind, Action::Kind::shuffle);
  const Action* const few = poll(run, cq, 4, true, choice);
  ASSERT_NE(few, nullptr);
  EXPECT_EQ(few->kind, Action::Kind::poll_few);
  EXPECT_EQ(few->amount, 3U);
  EXPECT_EQ(run.lines.size(), 2U);
}

TEST(Director, AChoiceDependsOnSeedObjectAndCount) {
  const auto choices = [](unsigned seed, uint64_t handle) {
    Play run("seed = " + std::to_string(seed) + "\n" +
             rule(R"(poll = "*")", R"(poll = "shuffle")", "times = 0\n"));
    static_cast<void>(run.director.object(ObjectKind::cq, run.device, 1));
    const Object cq = run.director.object(ObjectKind::cq, run.device, handle);
    std::vector<uint64_t> drawn(3);
    for (uint64_t& choice : drawn) EXPECT_NE(poll(run, cq, 4, true, choice), nullptr);
    return drawn;
  };
  const std::vector<uint64_t> first = choices(1, 1);
  EXPECT_NE(first[0], first[1]);
  EXPECT_EQ(choices(1, 1), first);
  EXPECT_NE(choices(2, 1), first);
  EXPECT_NE(choices(1, 2), first);
}

}  // namespace
}  // namespace faultline::trouble::test
