// SPDX-License-Identifier: BSD-3-Clause
// Interference between threads of a program: requests that change while they are posted, objects destroyed
// under load, several threads on one QP and one CQ.
#include <algorithm>
#include <thread>

#include <fcntl.h>

#include "tests/hang_limit.hpp"
#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::thread_test {

namespace {

template <typename T>
void store(T& field, T value) {
  __atomic_store_n(&field, value, __ATOMIC_RELAXED);
}

/// CVE-2026-74378: num_sge was checked in memory that the program can change, then read again.
TEST(ChangingRequests, OnlyACopyIsChecked) {
  constexpr uint32_t kInlineBytes = 64;
  constexpr uint32_t kLongElementBytes = 1024;
  constexpr size_t kLongestBytes = 2 * kLongElementBytes;  // longest message that may be posted
  constexpr int kPosts = 20000;
  EndOptions options;
  options.sges = 2;
  options.inline_bytes = kInlineBytes;
  const Pages from(4096);
  const Pages to(4096);
  End a("mem0", options);
  End b("mem1");
  ibv_mr* const local = a.add_region(from);
  ibv_mr* const remote = b.add_region(to);
  connect(a, b);
  std::memset(from.data(), 1, from.size());

  std::array<ibv_sge, 32> sges{};
  for (ibv_sge& sge : sges) sge = sge_of(local, 0, 16);
  ibv_send_wr wr{};
  wr.sg_list = sges.data();
  wr.num_sge = 2;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {to.address(), remote->rkey};
  std::atomic<bool> stop{false};
  std::thread flipper([&] {
    for (uint32_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      store(wr.num_sge, i % 3 == 0 ? 32 : 2);
      store(sges[i % 2].length, i % 5 == 0 ? kLongElementBytes : 16U);
      store(wr.send_flags, i % 2 == 0 ? static_cast<unsigned>(IBV_SEND_SIGNALED)
                                      : static_cast<unsigned>(IBV_SEND_SIGNALED | IBV_SEND_INLINE));
    }
  });
  int outstanding = 0;
  int posted = 0;
  std::array<ibv_wc, 16> wc{};
  const auto reap = [&] {
    const int got = ibv_poll_cq(a.cq, 16, wc.data());
    ASSERT_GE(got, 0);
    for (int i = 0; i < got; ++i) ASSERT_EQ(wc[static_cast<size_t>(i)].status, IBV_WC_SUCCESS);
    outstanding -= got;
    faultline_progress(b.context);
  };
  // On a busy machine the other thread may rest for all these posts, after it has set too many elements.
  const auto give_up = std::chrono::steady_clock::now() + faultline::test::hang_limit();
  for (int i = 0; i < kPosts || (posted == 0 && std::chrono::steady_clock::now() < give_up); ++i) {
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(a.qp, &wr, &bad);
    ASSERT_TRUE(error == 0 || error == EINVAL || error == ENOMEM) << error;
    if (error == 0) {
      ++posted;
      ++outstanding;
    }
    reap();
  }
  stop = true;
  flipper.join();
  for (int turn = 0; turn < 1000000 && outstanding != 0; ++turn) reap();
  EXPECT_EQ(outstanding, 0);
  EXPECT_GT(posted, 0);
  EXPECT_EQ(std::count(to.data() + kLongestBytes, to.data() + to.size(), 0),
            static_cast<ptrdiff_t>(to.size() - kLongestBytes))
      << "nothing ran past what was checked";
}

TEST(Threads, ShareOneQpAndOneCq) {
  constexpr int kThreads = 3;
  constexpr uint64_t kEach = 2000;
  const Pages from(4096);
  const Pages to(4096);
  End a("mem0");
  End b("mem1");
  ibv_mr* const local = a.add_region(from);
  ibv_mr* const remote = b.add_region(to);
  connect(a, b);
  std::atomic<bool> stop{false};
  std::thread peer([&] {
    while (!stop) {
      faultline_progress(b.context);
      std::this_thread::yield();
    }
  });
  std::array<std::atomic<uint32_t>, kThreads * kEach> seen{};
  std::atomic<uint64_t> completed{0};
  const auto poll_some = [&] {
    std::array<ibv_wc, 4> wc{};
    const int got = ibv_poll_cq(a.cq, 4, wc.data());
    ASSERT_GE(got, 0);
    for (int i = 0; i < got; ++i) {
      ASSERT_EQ(wc[static_cast<size_t>(i)].status, IBV_WC_SUCCESS);
      ++seen[wc[static_cast<size_t>(i)].wr_id];
    }
    completed += static_cast<uint64_t>(got);
  };
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      ibv_sge sge = sge_of(local, 0, 64);
      for (uint64_t i = 0; i < kEach; ++i) {
        ibv_send_wr wr{};
        wr.wr_id = static_cast<uint64_t>(t) * kEach + i;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.wr.rdma = {to.address(), remote->rkey};
        ibv_send_wr* bad = nullptr;
        while (ibv_post_send(a.qp, &wr, &bad) == ENOMEM) poll_some();
      }
      while (completed < kThreads * kEach) poll_some();
    });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  peer.join();
  for (const auto& count : seen) ASSERT_EQ(count, 1U) << "each request completes once";
}

/// A thread that has polled a completion may post into its slot at once, even while another thread drives the
/// engine and still notifies the channel.
TEST(Threads, ACompletionsSlotIsFreeWhenItIsSeen) {
  constexpr uint64_t kRounds = 5000;
  EndOptions options;
  options.depth = 1;
  options.with_channel = true;
  End a("mem0", options);
  const End b("mem1");
  connect(a, b);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);  // so that every posted request is flushed
  ASSERT_EQ(fcntl(a.channel->fd, F_SETFL, O_NONBLOCK), 0);
  std::atomic<bool> stop{false};
  std::thread engine([&] {
    while (!stop) faultline_progress(a.context);
  });
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  int refused = 0;
  for (uint64_t i = 0; i < kRounds; ++i) {
    const bool sends = i / 2 % 2 == 0;
    ASSERT_EQ(ibv_req_notify_cq(a.cq, 0), 0);
    if ((sends ? a.post_send(send) : a.post_receive(i, {})) != 0) {
      ++refused;
      continue;
    }
    ibv_wc wc{};
    while (ibv_poll_cq(a.cq, 1, &wc) == 0) {
    }
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    // Only in every second round, so that the next post follows the completion directly.
    while (i % 2 == 1 && ibv_get_cq_event(a.channel, &cq, &cq_context) == 0) ibv_ack_cq_events(cq, 1);
  }
  stop = true;
  engine.join();
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  while (ibv_get_cq_event(a.channel, &cq, &cq_context) == 0) ibv_ack_cq_events(cq, 1);
  EXPECT_EQ(refused, 0);
}

/// CVE-2025-21829 and similar: destruction under load terminates, and no reference to a destroyed object
/// remains.
TEST(Threads, QpsAreDestroyedUnderLoad) {
  constexpr int kRounds = 60;
  const Pages from(1 << 16);
  const Pages to(1 << 16);
  End a("mem0");
  End b("mem1");
  ibv_mr* const local = a.add_region(from, kAllRights | IBV_ACCESS_ON_DEMAND);
  ibv_mr* const remote = b.add_region(to, kAllRights | IBV_ACCESS_ON_DEMAND);
  std::atomic<bool> stop{false};
  std::thread peer([&] {
    while (!stop) {
      faultline_progress(b.context);
      faultline_progress(a.context);
      std::this_thread::yield();
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    // Starts with new QPs: packets of the previous QPs may still be in flight, and no QP accepts them now.
    connect(a, b, 1);
    ibv_sge sge = sge_of(local, 0, from.size());
    ASSERT_EQ(b.post_receive(1, {sge_of(remote, 0, to.size())}), 0);
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_RDMA_WRITE}) {
      ibv_send_wr wr{};
      wr.opcode = opcode;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.wr.rdma = {to.address(), remote->rkey};
      ASSERT_EQ(a.post_send(wr), 0);
    }
    if (round % 3 == 0) madvise(to.data(), to.size(), MADV_DONTNEED);
    for (int turn = 0; turn < round % 7; ++turn) faultline_progress(a.context);
    End& first = round % 2 == 0 ? a : b;
    End& second = round % 2 == 0 ? b : a;
    EXPECT_EQ(ibv_destroy_qp(first.qp), 0);
    EXPECT_EQ(ibv_destroy_qp(second.qp), 0);
    std::array<ibv_wc, 64> wc{};
    for (End* end : {&a, &b}) {
      EXPECT_GE(ibv_poll_cq(end->cq, 64, wc.data()), 0);
      end->make_qp({});
      ASSERT_NE(end->qp, nullptr);
    }
  }
  stop = true;
  peer.join();
}

}  // namespace

}  // namespace faultline::verbs::test::thread_test
