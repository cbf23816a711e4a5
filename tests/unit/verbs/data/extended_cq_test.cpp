// SPDX-License-Identifier: BSD-3-Clause
// Extended completion queues: polling one by one, timestamps, resize, moderation and overrun.
#include <ctime>
#include <thread>

#include <endian.h>
#include <fcntl.h>
#include <poll.h>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::extended_cq_test {

namespace {

constexpr uint64_t kTimestamps = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

uint64_t nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000U + static_cast<uint64_t>(now.tv_nsec);
}

ibv_cq_init_attr_ex init_of(uint32_t entries, uint32_t flags = 0) {
  ibv_cq_init_attr_ex init{};
  init.cqe = entries;
  init.wc_flags = kTimestamps;
  init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  init.flags = flags;
  return init;
}

/// A QP whose flushed receives complete in a given CQ: completions on request, without a peer.
class FlushedReceives {
 public:
  FlushedReceives(const End& end, ibv_cq* cq, uint32_t depth) : end_(end) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_UD;
    init.cap = {1, depth, 1, 1, 0};
    qp_ = ibv_create_qp(end.pd, &init);
    EXPECT_NE(qp_, nullptr);
    ibv_qp_attr attr{};
    attr.port_num = 1;
    attr.qp_state = IBV_QPS_INIT;
    EXPECT_EQ(ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    attr.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(ibv_modify_qp(qp_, &attr, IBV_QP_STATE), 0);
  }
  ~FlushedReceives() { EXPECT_EQ(ibv_destroy_qp(qp_), 0); }
  FlushedReceives(const FlushedReceives&) = delete;
  FlushedReceives& operator=(const FlushedReceives&) = delete;

  void complete(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      ibv_recv_wr wr{};
      wr.wr_id = next_++;
      ibv_recv_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_recv(qp_, &wr, &bad), 0);
    }
    faultline_progress(end_.context);
  }
  [[nodiscard]] uint32_t qpn() const { return qp_->qp_num; }

 private:
  const End& end_;
  ibv_qp* qp_ = nullptr;
  uint64_t next_ = 0;
};

class ExtendedCq : public ::testing::Test {
 protected:
  ~ExtendedCq() override {
    if (cq != nullptr) {
      EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    }
  }
  void create(ibv_cq_init_attr_ex init) {
    cq = ibv_create_cq_ex(end.context, &init);
    ASSERT_NE(cq, nullptr);
  }
  [[nodiscard]] int error_of(ibv_cq_init_attr_ex init) const {
    errno = 0;
    ibv_cq_ex* const made = ibv_create_cq_ex(end.context, &init);
    return made == nullptr ? errno : ibv_destroy_cq(ibv_cq_ex_to_cq(made));
  }
  [[nodiscard]] ibv_cq* plain() const { return ibv_cq_ex_to_cq(cq); }
  /// Returns the wr_ids of a whole batch.
  std::vector<uint64_t> batch() const {
    std::vector<uint64_t> ids;
    ibv_poll_cq_attr attr{};
    if (ibv_start_poll(cq, &attr) != 0) return ids;
    do ids.push_back(cq->wr_id);
    while (ibv_next_poll(cq) == 0);
    ibv_end_poll(cq);
    return ids;
  }
  const End end{"mem0"};
  ibv_cq_ex* cq = nullptr;
};

TEST_F(ExtendedCq, AttributesAreChecked) {
  EXPECT_EQ(error_of(init_of(16)), 0);
  EXPECT_EQ(error_of(init_of(0)), EINVAL);
  ibv_cq_init_attr_ex init = init_of(16);
  for (const uint64_t flag : {uint64_t{IBV_WC_EX_WITH_TM_INFO}, uint64_t{IBV_WC_EX_WITH_FLOW_TAG},
                              uint64_t{IBV_WC_EX_WITH_CVLAN}, uint64_t{1} << 40}) {
    init.wc_flags = flag;
    EXPECT_EQ(error_of(init), EOPNOTSUPP) << flag;
  }
  init = init_of(16);
  init.comp_mask |= IBV_CQ_INIT_ATTR_MASK_PD;
  EXPECT_EQ(error_of(init), EINVAL) << "no parent domain";
  init.comp_mask |= 1U << 5;
  EXPECT_EQ(error_of(init), EOPNOTSUPP);
  EXPECT_EQ(error_of(init_of(16, 1U << 7)), EINVAL);
  init = init_of(16, 1U << 7);
  init.comp_mask = 0;
  EXPECT_EQ(error_of(init), 0) << "flags that the mask does not name are not looked at";
  init.comp_vector = static_cast<uint32_t>(end.context->num_comp_vectors);
  EXPECT_EQ(error_of(init), EINVAL);
}

TEST_F(ExtendedCq, ABatchIsWalkedInOrderAndEndsWithENOENT) {
  create(init_of(16));
  ibv_poll_cq_attr attr{};
  EXPECT_EQ(ibv_start_poll(cq, &attr), ENOENT);
  attr.comp_mask = 1;
  EXPECT_EQ(ibv_start_poll(cq, &attr), EINVAL);
  attr.comp_mask = 0;
  FlushedReceives source(end, plain(), 8);
  source.complete(3);
  ASSERT_EQ(ibv_start_poll(cq, &attr), 0);
  EXPECT_EQ(cq->wr_id, 0U);
  EXPECT_EQ(cq->status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_qp_num(cq), source.qpn());
  EXPECT_EQ(ibv_wc_read_byte_len(cq), 0U);
  EXPECT_EQ(ibv_wc_read_vendor_err(cq), 48U);  // flushed by the program
  EXPECT_EQ(ibv_wc_read_slid(cq), 0U);
  EXPECT_EQ(ibv_wc_read_sl(cq), 0U);
  EXPECT_EQ(ibv_wc_read_dlid_path_bits(cq), 0U);
  ASSERT_EQ(ibv_next_poll(cq), 0);
  EXPECT_EQ(cq->wr_id, 1U);
  ASSERT_EQ(ibv_next_poll(cq), 0);
  EXPECT_EQ(cq->wr_id, 2U);
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  ibv_end_poll(cq);
  EXPECT_EQ(ibv_start_poll(cq, &attr), ENOENT);
  source.complete(1);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(plain(), 1, &wc), 1) << "ibv_poll_cq works on it too";
  EXPECT_EQ(wc.wr_id, 3U);
}

TEST_F(ExtendedCq, EveryFieldOfAReceiveIsRead) {
  const Pages pages(4096);
  create(init_of(16));
  End peer("mem1");
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = plain();
  init.qp_type = IBV_QPT_UD;
  init.cap = {4, 4, 1, 1, 0};
  EndOptions ud;
  ud.type = IBV_QPT_UD;
  End sender("mem1", ud);
  End receiver("mem0", ud);
  EXPECT_EQ(ibv_destroy_qp(receiver.qp), 0);
  // The same QP with the extended CQ, which belongs to the other context.
  ibv_cq_init_attr_ex cq_init = init_of(16);
  ibv_cq_ex* const own = ibv_create_cq_ex(receiver.context, &cq_init);
  ASSERT_NE(own, nullptr);
  init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(own);
  receiver.qp = ibv_create_qp(receiver.pd, &init);
  ASSERT_NE(receiver.qp, nullptr);
  connect(sender, receiver);
  ibv_mr* const mr = receiver.add_region(pages);
  ibv_mr* const from = sender.add_region(pages);
  ASSERT_EQ(receiver.post_receive(4, {sge_of(mr, 0, 2048)}), 0);
  ibv_ah_attr route = End::rtr_attributes(receiver.gid(), 0).ah_attr;
  ibv_ah* const ah = ibv_create_ah(sender.pd, &route);
  ASSERT_NE(ah, nullptr);
  ibv_sge sge = sge_of(from, 3000, 100);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = htobe32(77);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.ud = {ah, receiver.qp->qp_num, kQkey};
  const uint64_t before = nanoseconds(CLOCK_MONOTONIC);
  const uint64_t before_wallclock = nanoseconds(CLOCK_REALTIME);
  ASSERT_EQ(sender.post_send(wr), 0);
  ibv_poll_cq_attr attr{};
  int error = ENOENT;
  for (int turn = 0; turn < 100000 && error == ENOENT; ++turn) {
    faultline_progress(sender.context);
    error = ibv_start_poll(own, &attr);
  }
  ASSERT_EQ(error, 0);
  EXPECT_EQ(own->wr_id, 4U);
  EXPECT_EQ(own->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_byte_len(own), 140U);
  EXPECT_EQ(be32toh(ibv_wc_read_imm_data(own)), 77U);
  EXPECT_EQ(ibv_wc_read_src_qp(own), sender.qp->qp_num);
  EXPECT_EQ(ibv_wc_read_wc_flags(own), static_cast<unsigned int>(IBV_WC_GRH | IBV_WC_WITH_IMM));
  // The clock of the backend is CLOCK_MONOTONIC, like that of the devices.
  EXPECT_GE(ibv_wc_read_completion_ts(own), before);
  EXPECT_LE(ibv_wc_read_completion_ts(own), nanoseconds(CLOCK_MONOTONIC));
  EXPECT_GE(ibv_wc_read_completion_wallclock_ns(own) + 1000000000U, before_wallclock);
  EXPECT_LE(ibv_wc_read_completion_wallclock_ns(own), nanoseconds(CLOCK_REALTIME) + 1000000000U);
  ibv_end_poll(own);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_destroy_qp(receiver.qp), 0);
  receiver.qp = nullptr;
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(own)), 0);
}

TEST_F(ExtendedCq, TheRawClockIsTheTimestamps) {
  create(init_of(16));
  FlushedReceives source(end, plain(), 8);
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  ASSERT_EQ(ibv_query_rt_values_ex(end.context, &values), 0);
  const auto first = static_cast<uint64_t>(values.raw_clock.tv_nsec);
  source.complete(2);
  std::vector<uint64_t> stamps;
  ibv_poll_cq_attr attr{};
  ASSERT_EQ(ibv_start_poll(cq, &attr), 0);
  stamps.push_back(ibv_wc_read_completion_ts(cq));
  ASSERT_EQ(ibv_next_poll(cq), 0);
  stamps.push_back(ibv_wc_read_completion_ts(cq));
  ibv_end_poll(cq);
  ASSERT_EQ(ibv_query_rt_values_ex(end.context, &values), 0);
  EXPECT_LE(first, stamps[0]);
  EXPECT_LE(stamps[0], stamps[1]);
  EXPECT_LE(stamps[1], static_cast<uint64_t>(values.raw_clock.tv_nsec));
  values.comp_mask = IBV_VALUES_MASK_RESERVED;
  EXPECT_EQ(ibv_query_rt_values_ex(end.context, &values), EINVAL);
}

TEST_F(ExtendedCq, ThreadsShareItUnlessTheProgramSaysOtherwise) {
  constexpr uint32_t kCompletions = 4000;
  create(init_of(64));
  FlushedReceives source(end, plain(), 64);
  std::atomic<uint32_t> taken{0};
  std::vector<std::thread> pollers;
  pollers.reserve(2);
  for (int i = 0; i < 2; ++i)
    pollers.emplace_back([&] {
      while (taken < kCompletions) taken += static_cast<uint32_t>(batch().size());
    });
  for (uint32_t made = 0; made < kCompletions; made += 8) {
    while (made - taken > 32) std::this_thread::yield();
    source.complete(8);
  }
  for (std::thread& poller : pollers) poller.join();
  EXPECT_EQ(taken, kCompletions);

  ibv_cq_init_attr_ex init = init_of(16, IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
  ibv_cq_ex* const alone = ibv_create_cq_ex(end.context, &init);
  ASSERT_NE(alone, nullptr);
  {
    FlushedReceives more(end, ibv_cq_ex_to_cq(alone), 8);
    more.complete(2);
    ibv_poll_cq_attr attr{};
    ASSERT_EQ(ibv_start_poll(alone, &attr), 0);
    // No lock is held between start and end: the same thread may use the other polling interface.
    ibv_wc wc{};
    EXPECT_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(alone), 1, &wc), 1);
    ibv_end_poll(alone);
  }
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(alone)), 0);
}

TEST_F(ExtendedCq, AnOverrunEndsItsUseUnlessItIsIgnored) {
  create(init_of(4));
  {
    FlushedReceives source(end, plain(), 16);
    source.complete(16);
    EXPECT_EQ(batch().size(), 4U);
    ibv_poll_cq_attr attr{};
    EXPECT_EQ(ibv_start_poll(cq, &attr), EIO);
  }
  ibv_cq_init_attr_ex init = init_of(4, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
  ibv_cq_ex* const careless = ibv_create_cq_ex(end.context, &init);
  ASSERT_NE(careless, nullptr);
  {
    FlushedReceives source(end, ibv_cq_ex_to_cq(careless), 16);
    source.complete(16);
    std::array<ibv_wc, 16> wc{};
    EXPECT_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(careless), 16, wc.data()), 4) << "the rest is lost";
    EXPECT_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(careless), 16, wc.data()), 0) << "and the queue goes on";
    source.complete(1);
    EXPECT_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(careless), 16, wc.data()), 1);
  }
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(careless)), 0);
}

/// What was posted before the call completes first, also if another thread runs the engine's next turns.
TEST(ResizeCq, CountsWhatIsDueWhileAnotherThreadRunsTheEngine) {
  End a("mem0", {.depth = 16, .cqe = 8});
  const End b("mem1");
  const Pages pages(4096);
  ibv_mr* const mr = a.add_region(pages);
  connect(a, b);
  ibv_qp_attr error_state{};
  error_state.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a.qp, &error_state, IBV_QP_STATE), 0);
  for (int i = 0; i < 4; ++i) {
    ibv_sge sge = sge_of(mr, 0, 8);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ASSERT_EQ(a.post_send(wr), 0);
  }
  constexpr int kAll = 1'000'000;
  faults().missed_drives = kAll;
  EXPECT_EQ(ibv_resize_cq(a.cq, 1), EINVAL) << "four are due: they are flushed";
  faults().missed_drives = 0;
}

TEST_F(ExtendedCq, AResizeKeepsWhatIsNotPolled) {
  create(init_of(8));
  FlushedReceives source(end, plain(), 64);
  source.complete(5);
  ibv_wc wc{};
  ASSERT_EQ(ibv_poll_cq(plain(), 1, &wc), 1);
  EXPECT_EQ(ibv_resize_cq(plain(), 3), EINVAL) << "four are waiting";
  EXPECT_EQ(cq->cqe, 8);
  EXPECT_EQ(ibv_resize_cq(plain(), 0), EINVAL);
  EXPECT_EQ(ibv_resize_cq(plain(), 1 << 30), EINVAL);
  ASSERT_EQ(ibv_resize_cq(plain(), 40), 0);
  EXPECT_EQ(cq->cqe, 40);
  source.complete(30);
  const std::vector<uint64_t> ids = batch();
  ASSERT_EQ(ids.size(), 34U);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], i + 1);
  ASSERT_EQ(ibv_resize_cq(plain(), 4), 0) << "smaller, now that it is empty";
  source.complete(4);
  EXPECT_EQ(batch().size(), 4U);
}

TEST_F(ExtendedCq, ItIsResizedUnderLoad) {
  constexpr uint64_t kCompletions = 20000;
  create(init_of(128));
  FlushedReceives source(end, plain(), 64);
  std::atomic<uint64_t> taken{0};
  std::thread poller([&] {
    uint64_t expected = 0;
    while (expected < kCompletions) {
      for (const uint64_t id : batch()) ASSERT_EQ(id, expected++);
      taken = expected;
    }
  });
  for (uint64_t made = 0; made < kCompletions; made += 32) {
    while (made - taken > 32) std::this_thread::yield();
    if (made % 256 == 0) {
      ASSERT_EQ(ibv_resize_cq(plain(), made % 512 == 0 ? 256 : 128), 0);
    }
    source.complete(32);
  }
  poller.join();
}

/// Arming takes no lock of the queue in adapters, and programs arm between ibv_start_poll and ibv_end_poll.
class ArmedInABatch : public ExtendedCq {
 protected:
  ~ArmedInABatch() override {
    EXPECT_EQ(ibv_destroy_cq(plain()), 0);
    cq = nullptr;
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  }
  void SetUp() override {
    ASSERT_EQ(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
    ibv_cq_init_attr_ex init = init_of(64);
    init.channel = channel;
    create(init);
  }
  [[nodiscard]] int events() const {
    ibv_cq* which = nullptr;
    void* cq_context = nullptr;
    int count = 0;
    for (; ibv_get_cq_event(channel, &which, &cq_context) == 0; ++count) ibv_ack_cq_events(which, 1);
    return count;
  }
  ibv_comp_channel* const channel = ibv_create_comp_channel(end.context);
};

TEST_F(ArmedInABatch, TheNextCompletionMakesTheEvent) {
  FlushedReceives source(end, plain(), 64);
  source.complete(2);
  ibv_poll_cq_attr attr{};
  ASSERT_EQ(ibv_start_poll(cq, &attr), 0);
  ASSERT_EQ(ibv_next_poll(cq), 0);
  ASSERT_EQ(ibv_req_notify_cq(plain(), 0), 0);
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  ibv_end_poll(cq);
  EXPECT_EQ(events(), 0) << "all was polled";
  source.complete(1);
  EXPECT_EQ(events(), 1);
  source.complete(1);
  EXPECT_EQ(events(), 0) << "once";
}

TEST_F(ArmedInABatch, WhatTheBatchLeavesMakesTheEvent) {
  FlushedReceives source(end, plain(), 64);
  source.complete(3);
  ibv_poll_cq_attr attr{};
  ASSERT_EQ(ibv_start_poll(cq, &attr), 0);
  ASSERT_EQ(ibv_req_notify_cq(plain(), 0), 0);
  EXPECT_EQ(events(), 0) << "the batch goes on";
  ibv_end_poll(cq);
  EXPECT_EQ(events(), 1) << "two are left";
  EXPECT_EQ(batch().size(), 2U);
  source.complete(1);
  EXPECT_EQ(events(), 0) << "once";
}

TEST_F(ArmedInABatch, AnotherThreadArmsIt) {
  FlushedReceives source(end, plain(), 64);
  source.complete(3);
  ibv_poll_cq_attr attr{};
  ASSERT_EQ(ibv_start_poll(cq, &attr), 0);
  std::thread([this] { EXPECT_EQ(ibv_req_notify_cq(plain(), 0), 0); }).join();
  ibv_end_poll(cq);
  EXPECT_EQ(events(), 1);
}

class Moderation : public ExtendedCq {
 protected:
  ~Moderation() override {
    EXPECT_EQ(ibv_destroy_cq(plain()), 0);
    cq = nullptr;
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  }
  void SetUp() override {
    ASSERT_EQ(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
    ibv_cq_init_attr_ex init = init_of(64);
    init.channel = channel;
    create(init);
  }
  [[nodiscard]] int moderate(uint16_t count, uint16_t period_us) const {
    ibv_modify_cq_attr attr{};
    attr.attr_mask = IBV_CQ_ATTR_MODERATE;
    attr.moderate = {count, period_us};
    return ibv_modify_cq(plain(), &attr);
  }
  [[nodiscard]] bool told() const {
    ibv_cq* which = nullptr;
    void* cq_context = nullptr;
    if (ibv_get_cq_event(channel, &which, &cq_context) != 0) return false;
    ibv_ack_cq_events(which, 1);
    return true;
  }
  ibv_comp_channel* const channel = ibv_create_comp_channel(end.context);
};

TEST_F(Moderation, AnEventForSoManyCompletions) {
  ibv_modify_cq_attr none{};
  EXPECT_EQ(ibv_modify_cq(plain(), &none), EINVAL);
  ASSERT_EQ(moderate(4, 0), 0);
  FlushedReceives source(end, plain(), 64);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(ibv_req_notify_cq(plain(), 0), 0);
    source.complete(3);
    EXPECT_FALSE(told());
    source.complete(1);
    EXPECT_TRUE(told());
    EXPECT_EQ(batch().size(), 4U);
  }
  ASSERT_EQ(moderate(0, 0), 0);
  ASSERT_EQ(ibv_req_notify_cq(plain(), 0), 0);
  source.complete(1);
  EXPECT_TRUE(told()) << "each again";
}

TEST_F(Moderation, OrAfterAPeriodWhicheverComesFirst) {
  ASSERT_EQ(moderate(32, 2000), 0);
  FlushedReceives source(end, plain(), 64);
  ASSERT_EQ(ibv_req_notify_cq(plain(), 0), 0);
  const uint64_t start = nanoseconds(CLOCK_MONOTONIC);
  source.complete(1);
  bool event = false;
  while (!event && nanoseconds(CLOCK_MONOTONIC) - start < 10'000'000'000U) {
    faultline_progress(end.context);
    event = told();
  }
  EXPECT_TRUE(event);
  EXPECT_GE(nanoseconds(CLOCK_MONOTONIC) - start, 2'000'000U) << "not before its time";
  EXPECT_EQ(batch().size(), 1U);
  // Destroyed while moderation delays an event.
  ASSERT_EQ(ibv_req_notify_cq(plain(), 0), 0);
  source.complete(1);
}

/// A device may have work without end. A smaller queue waits for a number of turns, for no time.
TEST_F(Moderation, AResizeDoesNotWaitForWorkThatStays) {
  constexpr uint16_t kCompletionsThatNeverCome = 32;
  ASSERT_EQ(moderate(kCompletionsThatNeverCome, UINT16_MAX), 0);
  FlushedReceives source(end, plain(), 64);
  ASSERT_EQ(ibv_req_notify_cq(plain(), 0), 0);
  source.complete(1);
  const uint64_t before = turns_of_all_cores();
  EXPECT_EQ(ibv_resize_cq(plain(), 16), 0);
  EXPECT_LE(turns_of_all_cores() - before, 64U);
  EXPECT_EQ(batch().size(), 1U);
}

}  // namespace

}  // namespace faultline::verbs::test::extended_cq_test
