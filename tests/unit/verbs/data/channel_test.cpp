// SPDX-License-Identifier: BSD-3-Clause
// Completion channels: which completions make an event, when the descriptor is readable, and which calls
// block.
#include <thread>

#include <fcntl.h>
#include <poll.h>

#include "tests/hang_limit.hpp"
#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::channel_test {

namespace {

bool readable(int descriptor) {
  pollfd fd{descriptor, POLLIN, 0};
  return poll(&fd, 1, 0) == 1;
}

void set_nonblocking(int descriptor) {
  ASSERT_EQ(fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK), 0);
}

class ChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    local = a.add_region(from);
    remote = b.add_region(to);
    connect(a, b);
  }
  static EndOptions options() {
    EndOptions result;
    result.with_channel = true;
    return result;
  }
  ibv_send_wr write_wr() {
    sge = sge_of(local, 0, 64);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma = {to.address(), remote->rkey};
    return wr;
  }
  /// Drives both engines until a completion waits in `end`'s CQ, without polling.
  void run(const End& end) const {
    const uint64_t before = counter(end);
    for (int turn = 0; turn < 100000 && counter(end) == before; ++turn) drive();
  }
  void drive() const {
    faultline_progress(a.context);
    faultline_progress(b.context);
  }
  /// Drives often enough for all pending work.
  void settle() const {
    for (int turn = 0; turn < 200; ++turn) drive();
  }
  static uint64_t counter(const End& end) {
    std::vector<faultline_counter> counters(
        static_cast<size_t>(faultline_query_counters(end.context, nullptr, 0)));
    faultline_query_counters(end.context, counters.data(), counters.size());
    uint64_t sum = 0;
    for (const faultline_counter& c : counters)
      if (std::string(c.name) == "transport.messages_sent" ||
          std::string(c.name) == "transport.messages_received")
        sum += c.value;
    return sum;
  }
  void write_one() {
    ASSERT_EQ(a.post_send(write_wr()), 0);
    run(a);
  }
  static int poll_all(const End& end) {
    std::array<ibv_wc, 16> wc{};
    return ibv_poll_cq(end.cq, 16, wc.data());
  }
  /// Takes one event and acknowledges it. Returns 0 or an errno.
  static int take(const End& end) {
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    if (ibv_get_cq_event(end.channel, &cq, &cq_context) != 0) return errno;
    EXPECT_EQ(cq, end.cq);
    EXPECT_EQ(cq_context, &end);
    ibv_ack_cq_events(cq, 1);
    return 0;
  }

  const Pages from{4096};
  const Pages to{4096};
  End a{"mem0", options()};
  End b{"mem1", options()};
  ibv_mr* local = nullptr;
  ibv_mr* remote = nullptr;
  ibv_sge sge{};
};

TEST_F(ChannelTest, AnArmedQueueTellsOnceOfTheNextCompletion) {
  set_nonblocking(a.channel->fd);
  write_one();
  EXPECT_FALSE(readable(a.channel->fd)) << "not armed";
  EXPECT_EQ(poll_all(a), 1);
  ASSERT_EQ(ibv_req_notify_cq(a.cq, 0), 0);
  EXPECT_FALSE(readable(a.channel->fd));
  write_one();
  EXPECT_TRUE(readable(a.channel->fd));
  write_one();
  EXPECT_EQ(take(a), 0);
  EXPECT_FALSE(readable(a.channel->fd)) << "one event for one request";
  EXPECT_EQ(take(a), EAGAIN);
  EXPECT_EQ(poll_all(a), 2);
}

/// Arms after the last poll without polling again: an adapter raises an event for completions that arrived in
/// between.
TEST_F(ChannelTest, ArmingOverUnpolledCompletionsTellsAtOnce) {
  set_nonblocking(a.channel->fd);
  write_one();
  ASSERT_EQ(ibv_req_notify_cq(a.cq, 0), 0);
  EXPECT_TRUE(readable(a.channel->fd));
  EXPECT_EQ(take(a), 0);
  // The usual loop: event, arm, poll. Completions already reported cause no second event.
  ASSERT_EQ(ibv_req_notify_cq(a.cq, 0), 0);
  EXPECT_FALSE(readable(a.channel->fd));
  EXPECT_EQ(poll_all(a), 1);
  write_one();
  EXPECT_EQ(take(a), 0);
  EXPECT_EQ(poll_all(a), 1);
}

TEST_F(ChannelTest, SolicitedOnlyWaitsForAReceiveThatAskedOrAFailure) {
  set_nonblocking(b.channel->fd);
  ASSERT_EQ(ibv_req_notify_cq(b.cq, 1), 0);
  for (const unsigned int flags : {0U, static_cast<unsigned int>(IBV_SEND_SOLICITED)}) {
    ASSERT_EQ(b.post_receive(1, {sge_of(remote, 0, 64)}), 0);
    ibv_send_wr wr = write_wr();
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = flags;
    ASSERT_EQ(a.post_send(wr), 0);
    settle();
    EXPECT_EQ(readable(b.channel->fd), flags != 0);
  }
  EXPECT_EQ(take(b), 0);
  EXPECT_EQ(poll_all(b), 2);
  ASSERT_EQ(ibv_req_notify_cq(b.cq, 1), 0);
  ASSERT_EQ(b.post_receive(1, {}), 0);
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(b.qp, &error, IBV_QP_STATE), 0);
  EXPECT_EQ(take(b), 0) << "a flushed receive is a failure";
}

TEST_F(ChannelTest, ABlockedReaderWakesUp) {
  ASSERT_EQ(ibv_req_notify_cq(b.cq, 0), 0);
  ASSERT_EQ(b.post_receive(1, {sge_of(remote, 0, 64)}), 0);
  std::thread reader([&] { EXPECT_EQ(take(b), 0); });
  ibv_send_wr wr = write_wr();
  wr.opcode = IBV_WR_SEND;
  ASSERT_EQ(a.post_send(wr), 0);
  // The reader itself drives its engine only for a while.
  std::atomic<bool> stop{false};
  std::thread engine([&] {
    while (!stop) {
      drive();
      std::this_thread::yield();
    }
  });
  reader.join();
  stop = true;
  engine.join();
}

TEST_F(ChannelTest, DestroyTakesPendingEventsAlong) {
  set_nonblocking(a.channel->fd);
  ibv_cq* const second = ibv_create_cq(a.context, 4, nullptr, a.channel, 0);
  ASSERT_NE(second, nullptr);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = second;
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 0};
  ibv_qp* const qp = ibv_create_qp(a.pd, &init);
  ASSERT_EQ(ibv_req_notify_cq(second, 0), 0);
  ibv_qp_attr attr{};
  attr.port_num = 1;
  attr.qp_state = IBV_QPS_INIT;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
  EXPECT_TRUE(readable(a.channel->fd));
  EXPECT_EQ(ibv_destroy_comp_channel(a.channel), EBUSY);
  ASSERT_EQ(ibv_destroy_qp(qp), 0);
  ASSERT_EQ(ibv_destroy_cq(second), 0);
  EXPECT_FALSE(readable(a.channel->fd)) << "its event went with it";
  EXPECT_EQ(take(a), EAGAIN);
}

TEST_F(ChannelTest, DestroyWaitsUntilEventsAreAcknowledged) {
  EXPECT_EQ(ibv_destroy_qp(b.qp), 0);
  b.qp = nullptr;
  ibv_cq* const cq = ibv_create_cq(b.context, 4, nullptr, b.channel, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_UD;
  init.cap = {4, 4, 1, 1, 0};
  ibv_qp* const qp = ibv_create_qp(b.pd, &init);
  ibv_qp_attr attr{};
  attr.port_num = 1;
  attr.qp_state = IBV_QPS_INIT;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
  ibv_cq* told = nullptr;
  void* cq_context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(b.channel, &told, &cq_context), 0);
  ASSERT_EQ(told, cq);
  ASSERT_EQ(ibv_destroy_qp(qp), 0);
  std::atomic<bool> acknowledged{false};
  std::thread reader([&] {
    std::this_thread::yield();
    acknowledged = true;
    ibv_ack_cq_events(told, 1);
  });
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_TRUE(acknowledged);
  reader.join();
}

TEST(Channels, AreOfOneContext) {
  ibv_context* const first = open("mem0");
  ibv_context* const second = open("mem0");
  ibv_comp_channel* const channel = ibv_create_comp_channel(first);
  ASSERT_NE(channel, nullptr);
  EXPECT_GE(channel->fd, 0);
  errno = 0;
  EXPECT_EQ(ibv_create_cq(second, 4, nullptr, channel, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  EXPECT_EQ(ibv_close_device(first), 0);
  EXPECT_EQ(ibv_close_device(second), 0);
}

/// Every completion is returned by the poll after the arm or makes an event: a loop that sleeps in between
/// never stalls.
TEST_F(ChannelTest, NoCompletionIsMissedBetweenArmAndPoll) {
  constexpr uint64_t kMessages = 2000;
  constexpr uint64_t kUnpolled = 128;  // of the queue's 256 entries
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> seen{0};
  std::thread engine([&] {
    while (!stop) drive();
  });
  std::thread sender([&] {
    for (uint64_t i = 0; i < kMessages; ++i) {
      while (i - seen > kUnpolled) std::this_thread::yield();
      ibv_send_wr wr = write_wr();
      ibv_send_wr* bad = nullptr;
      while (ibv_post_send(a.qp, &wr, &bad) == ENOMEM) std::this_thread::yield();
    }
  });
  ASSERT_EQ(ibv_req_notify_cq(a.cq, 0), 0);
  while (seen < kMessages) {
    pollfd fd{a.channel->fd, POLLIN, 0};
    ASSERT_EQ(poll(&fd, 1, faultline::test::hang_ms()), 1) << "stalled after " << seen;
    ASSERT_EQ(take(a), 0);
    ASSERT_EQ(ibv_req_notify_cq(a.cq, 0), 0);
    for (int got = 0; (got = poll_all(a)) > 0;) seen += static_cast<uint64_t>(got);
  }
  EXPECT_EQ(seen, kMessages);
  sender.join();
  stop = true;
  engine.join();
}

}  // namespace

}  // namespace faultline::verbs::test::channel_test
