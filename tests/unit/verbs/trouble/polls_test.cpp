// SPDX-License-Identifier: BSD-3-Clause
// What a scenario does to polls: completions that are late, few, or in another order.
#include <algorithm>
#include <cerrno>
#include <optional>

#include <fcntl.h>

#include "stack/verbs/objects/objects.hpp"
#include "tests/hang_limit.hpp"
#include "tests/unit/verbs/fixture.hpp"
#include "tests/unit/verbs/trouble/play.hpp"

namespace faultline::verbs::test::polls_test {
namespace {

/// Receives have these numbers, sends those from 0 on.
constexpr uint64_t kFirstReceive = 100;

std::string at_polls(const std::string& action, unsigned times, unsigned seed = 1) {
  return "seed = " + std::to_string(seed) + "\n[[rule]]\nname = \"r\"\nwhen = { poll = \"*\" }\ndo = { " +
         action + " }\ntimes = " + std::to_string(times) + "\n";
}

/// Two devices; the second has a queue with completions of its receives and its sends.
struct Polled {
  explicit Polled(const EndOptions& options = {}) : a("mem0"), b("mem1", options) {
    connect(a, b);
    from = a.add_region(pages);
    to = b.add_region(pages);
  }

  void wait_for(uint32_t completions) const {
    const auto give_up = std::chrono::steady_clock::now() + faultline::test::hang_limit();
    while (cq_of(b.cq).unread() < completions && std::chrono::steady_clock::now() < give_up) {
      faultline_progress(a.context);
      faultline_progress(b.context);
    }
    ASSERT_EQ(cq_of(b.cq).unread(), completions);
  }
  /// `count` receives of the second device complete.
  void receive(uint32_t count) const {
    const uint32_t before = cq_of(b.cq).unread();
    for (uint32_t i = 0; i < count; ++i) ASSERT_EQ(b.post_receive(kFirstReceive + i, {sge_of(to, 0, 8)}), 0);
    for (uint32_t i = 0; i < count; ++i) ASSERT_EQ(a.post_send(request(from, IBV_WR_SEND, i)), 0);
    wait_for(before + count);
  }
  /// `count` sends of the second device complete.
  void send(uint32_t count) const {
    const uint32_t before = cq_of(b.cq).unread();
    for (uint32_t i = 0; i < count; ++i) ASSERT_EQ(b.post_send(request(to, IBV_WR_RDMA_WRITE, i)), 0);
    wait_for(before + count);
  }
  [[nodiscard]] std::vector<uint64_t> poll(size_t most = 64) const {
    std::vector<ibv_wc> wcs(most);
    const int got = ibv_poll_cq(b.cq, static_cast<int>(most), wcs.data());
    EXPECT_GE(got, 0);
    std::vector<uint64_t> ids;
    for (int i = 0; i < got; ++i) ids.push_back(wcs[static_cast<size_t>(i)].wr_id);
    return ids;
  }
  /// Takes the next event of the channel and acknowledges it. False: there is none.
  [[nodiscard]] bool wakes() const {
    fcntl(b.channel->fd, F_SETFL, O_NONBLOCK);
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    if (ibv_get_cq_event(b.channel, &cq, &user) != 0) return false;
    ibv_ack_cq_events(cq, 1);
    return true;
  }

  /// Requests an event for later completions; the events of those that wait are taken.
  void arm() const {
    do {
      ASSERT_EQ(ibv_req_notify_cq(b.cq, 0), 0);
    } while (wakes());
  }

  const Pages pages{8192};
  End a, b;
  ibv_mr* from = nullptr;
  ibv_mr* to = nullptr;

 private:
  [[nodiscard]] ibv_send_wr request(const ibv_mr* region, ibv_wr_opcode opcode, uint64_t wr_id) const {
    sge = sge_of(region, 4096, 8);
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {from->addr == nullptr ? 0 : reinterpret_cast<uint64_t>(from->addr), from->rkey};
    return wr;
  }
  mutable ibv_sge sge{};
};

constexpr uint32_t kEach = 8;

/// What a poll returns when as many receives as sends wait, which completed one after the other.
std::vector<uint64_t> shuffled(unsigned seed) {
  const Play play(at_polls(R"(poll = "shuffle")", 1, seed));
  const Polled pair;
  pair.receive(kEach);
  pair.send(kEach);
  const std::vector<uint64_t> ids = pair.poll();
  EXPECT_EQ(play.lines().size(), 1U);
  return ids;
}

TEST(Polls, CompletionsOfTwoWorkQueuesChangePlacesAndEachQueueKeepsItsOrder) {
  const std::vector<uint64_t> ids = shuffled(1);
  ASSERT_EQ(ids.size(), 2 * kEach);
  std::vector<uint64_t> sends, receives;
  for (const uint64_t id : ids) (id < kFirstReceive ? sends : receives).push_back(id);
  EXPECT_TRUE(std::ranges::is_sorted(sends));
  EXPECT_TRUE(std::ranges::is_sorted(receives));
  EXPECT_EQ(sends.size(), kEach);
  EXPECT_FALSE(std::ranges::is_sorted(ids, std::greater<>(), [](uint64_t id) { return id >= kFirstReceive; }))
      << "as they completed";
  EXPECT_EQ(shuffled(1), ids) << "the same seed";
  EXPECT_NE(shuffled(2), ids) << "another seed";
}

TEST(Polls, CompletionsOfOneWorkQueueAreNotShuffled) {
  const Play play(at_polls(R"(poll = "shuffle")", 0));
  const Polled pair;
  pair.receive(kEach);
  EXPECT_TRUE(std::ranges::is_sorted(pair.poll()));
  EXPECT_TRUE(play.lines().empty()) << "and the scenario decides nothing";
}

TEST(Polls, APollReturnsFewCompletionsAndTheNextOneTheRest) {
  const Play play(at_polls(R"(poll = "few", most = 2)", 2));
  const Polled pair;
  pair.receive(5);
  EXPECT_EQ(pair.poll(), (std::vector<uint64_t>{100, 101}));
  EXPECT_EQ(pair.poll(1), (std::vector<uint64_t>{102})) << "fewer were asked for";
  EXPECT_EQ(pair.poll(), (std::vector<uint64_t>{103, 104}));
  EXPECT_EQ(play.lines().size(), 2U) << "two completions are not more than two";
}

TEST(Polls, AnIterationEndsAfterFewCompletions) {
  const Play play(at_polls(R"(poll = "few", most = 2)", 1));
  const Polled pair({.with_channel = true});
  pair.receive(3);
  Cq& cq = cq_of(pair.b.cq);
  const auto iterate = [&cq] {
    std::vector<uint64_t> ids;
    ibv_poll_cq_attr attributes{};
    int error = ibv_start_poll(&cq, &attributes);
    if (error == ENOENT) return ids;
    for (; error == 0; error = ibv_next_poll(&cq)) ids.push_back(cq.wr_id);
    EXPECT_EQ(error, ENOENT);
    ibv_end_poll(&cq);
    return ids;
  };
  pair.arm();
  EXPECT_EQ(iterate(), (std::vector<uint64_t>{100, 101}));
  EXPECT_TRUE(pair.wakes()) << "the rest arrives after the iteration";
  EXPECT_EQ(iterate(), std::vector<uint64_t>{102});
  EXPECT_EQ(iterate(), std::vector<uint64_t>{});
  EXPECT_FALSE(pair.wakes());
}

TEST(Polls, HiddenCompletionsWakeAProgramThatHasArmedTheQueue) {
  for (const char* const action : {R"(poll = "nothing")", R"(poll = "few", most = 1)"}) {
    const Play play(at_polls(action, 1));
    const Polled pair({.with_channel = true});
    pair.receive(3);
    pair.arm();
    EXPECT_LT(pair.poll().size(), 3U);
    EXPECT_TRUE(pair.wakes()) << action;
  }
}

TEST(Polls, HiddenCompletionsWakeAProgramThatArmsTheQueueLater) {
  // As an adapter does for completions between the last poll and the request of an event.
  const Play play(at_polls(R"(poll = "nothing")", 1));
  const Polled pair({.with_channel = true});
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq, 0), 0);
  pair.receive(1);
  ASSERT_TRUE(pair.wakes());
  EXPECT_TRUE(pair.poll().empty());
  EXPECT_FALSE(pair.wakes()) << "nothing is armed";
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq, 0), 0);
  EXPECT_TRUE(pair.wakes());
}

}  // namespace
}  // namespace faultline::verbs::test::polls_test
