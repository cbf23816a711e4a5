// SPDX-License-Identifier: BSD-3-Clause
// What a program's threads can do to verbs objects, one test for each published defect of other stacks. (See
// allocation_test.cpp for failing allocations, thread_test.cpp also for requests that change,
// transition_test.cpp for transitions.)
#include <algorithm>
#include <thread>

#include <fcntl.h>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::threats_test {

namespace {

template <typename T>
void store(T& field, T value) {
  __atomic_store_n(&field, value, __ATOMIC_RELAXED);
}

/// Runs `work` repeatedly on a separate thread during its lifetime.
class Background {
 public:
  template <typename Work>
  explicit Background(Work work)
      : thread_([this, work] {
          while (!stop_) work();
        }) {}
  ~Background() {
    stop_ = true;
    thread_.join();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

ibv_qp* make_qp(const End& end, ibv_srq* srq, uint32_t sges = 1) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = end.cq;
  init.srq = srq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {16, 16, sges, sges, 0};
  return ibv_create_qp(end.pd, &init);
}

/// CVE-2026-74377: a receive's num_sge was checked in memory that the program can change, then read again.
TEST(Cve202674377, AReceivesElementsAreCountedOnce) {
  constexpr int kPosts = 20000;
  const Pages pages(4096);
  EndOptions options;
  options.type = IBV_QPT_UD;
  options.sges = 2;
  End end("mem0", options);
  ibv_mr* const mr = end.add_region(pages);
  ASSERT_EQ(end.to_init(), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE),
            0);  // accepted receives are flushed, so that there is room
  std::array<ibv_sge, 64> sges{};
  for (ibv_sge& sge : sges) sge = sge_of(mr, 0, 16);
  ibv_recv_wr wr{1, nullptr, sges.data(), 2};
  std::atomic<uint32_t> turn{0};
  const Background flipper([&] { store(wr.num_sge, ++turn % 2 == 0 ? 64 : 2); });
  int taken = 0;
  int flushed = 0;
  for (int i = 0; i < kPosts; ++i) {
    ibv_recv_wr* bad = nullptr;
    const int error = ibv_post_recv(end.qp, &wr, &bad);
    ASSERT_TRUE(error == 0 || error == EINVAL) << error;
    taken += error == 0 ? 1 : 0;
    std::array<ibv_wc, 8> wc{};
    flushed += ibv_poll_cq(end.cq, 8, wc.data());
  }
  ibv_wc wc{};
  while (flushed < taken) flushed += ibv_poll_cq(end.cq, 1, &wc);
  EXPECT_EQ(flushed, taken);
}

/// CVE-2026-74378 on the extended interface: the list and its buffers change while they are copied.
TEST(Cve202674378, AnInlineListIsMeasuredAsItIsCopied) {
  constexpr int kBatches = 5000;
  const Pages to(4096);
  End a("mem0");
  End b("mem1");
  EXPECT_EQ(ibv_destroy_qp(a.qp), 0);
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = a.cq;
  init.pd = a.pd;
  init.cap = {16, 1, 1, 1, 64};
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
  a.qp = ibv_create_qp_ex(a.context, &init);
  ASSERT_NE(a.qp, nullptr);
  ibv_mr* const remote = b.add_region(to);
  connect(a, b);
  ibv_qp_ex* const qpx = ibv_qp_to_qp_ex(a.qp);
  std::array<uint8_t, 4096> data{};
  data.fill(1);
  std::array<ibv_data_buf, 2> list{{{data.data(), 32}, {data.data(), 32}}};
  std::atomic<size_t> turn{0};
  const Background flipper([&] { store(list[1].length, ++turn % 2 == 0 ? size_t{4096} : size_t{32}); });
  int outstanding = 0;
  for (int i = 0; i < kBatches || outstanding != 0; ++i) {
    if (i < kBatches) {
      ibv_wr_start(qpx);
      qpx->wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_rdma_write(qpx, remote->rkey, to.address());
      ibv_wr_set_inline_data_list(qpx, list.size(), list.data());
      const int error = ibv_wr_complete(qpx);
      ASSERT_TRUE(error == 0 || error == EINVAL || error == ENOMEM) << error;
      outstanding += error == 0 ? 1 : 0;
    }
    std::array<ibv_wc, 8> wc{};
    const int got = ibv_poll_cq(a.cq, 8, wc.data());
    ASSERT_GE(got, 0);
    for (int k = 0; k < got; ++k) ASSERT_EQ(wc[static_cast<size_t>(k)].status, IBV_WC_SUCCESS);
    outstanding -= got;
    faultline_progress(b.context);
  }
  EXPECT_EQ(std::count(to.data() + 64, to.data() + to.size(), 0), static_cast<ptrdiff_t>(to.size() - 64));
}

/// rxe, 2026: queues created without elements, and requests with any number of them.
TEST(Rxe2026, AQueueWithoutElementsTakesNone) {
  const Pages pages(4096);
  End a("mem0");
  End b("mem1");
  for (End* end : {&a, &b}) {
    EXPECT_EQ(ibv_destroy_qp(end->qp), 0);
    end->qp = make_qp(*end, nullptr, 0);
    ASSERT_NE(end->qp, nullptr);
  }
  ibv_mr* const mr = a.add_region(pages);
  connect(a, b);
  ibv_sge sge = sge_of(mr, 0, 8);
  for (const int count : {1, 2, 17, 255, 256, 257, 0x7fffffff, -1, -256, static_cast<int>(0x80000000U)}) {
    SCOPED_TRACE(count);
    for (const ibv_wr_opcode opcode :
         {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE,
          IBV_WR_SEND_WITH_INV}) {
      ibv_send_wr wr{};
      wr.opcode = opcode;
      wr.sg_list = &sge;
      wr.num_sge = count;
      EXPECT_EQ(a.post_send(wr), EINVAL) << opcode;
    }
    ibv_recv_wr wr{1, nullptr, &sge, count};
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(b.qp, &wr, &bad), EINVAL);
  }
  ASSERT_EQ(b.post_receive(1, {}), 0);
  ibv_send_wr empty{};
  empty.opcode = IBV_WR_SEND;
  empty.send_flags = IBV_SEND_SIGNALED;
  ASSERT_EQ(a.post_send(empty), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion(b, a).byte_len, 0U);
}

/// CVE-2026-64582: a ring replaced and destroyed while others use it.
TEST(Cve202664582, RingsAreReplacedUnderTheirUsers) {
  constexpr int kRounds = 300;
  End end("mem0");
  for (int round = 0; round < 5; ++round) {
    ibv_srq_init_attr init{nullptr, {64, 1, 0}};
    ibv_srq* const srq = ibv_create_srq(end.pd, &init);
    ibv_cq* const cq = ibv_create_cq(end.context, 64, nullptr, nullptr, 0);
    ASSERT_NE(srq, nullptr);
    ASSERT_NE(cq, nullptr);
    {
      const Background poster([&] {
        ibv_recv_wr wr{};
        ibv_recv_wr* bad = nullptr;
        const int error = ibv_post_srq_recv(srq, &wr, &bad);
        ASSERT_TRUE(error == 0 || error == ENOMEM);
      });
      const Background poller([&] {
        ibv_wc wc{};
        ASSERT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
      });
      for (int i = 0; i < kRounds; ++i) {
        ibv_srq_attr attr{};
        attr.max_wr = 64U << (i % 4);
        const int error = ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
        ASSERT_TRUE(error == 0 || error == EINVAL) << "EINVAL: more are posted than would fit";
        ASSERT_EQ(ibv_resize_cq(cq, 16 << (i % 5)), 0);
      }
    }
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
  }
}

/// CVE-2025-21829: an object's destruction waited for a reference that was never dropped. All objects are
/// destroyed, in order, while messages are in flight and an engine thread runs. An object with users returns
/// EBUSY until they are destroyed.
TEST(Cve202521829, AllObjectsGoUnderLoad) {
  constexpr int kRounds = 40;
  const Pages from(1 << 16);
  const Pages to(1 << 16);
  End a("mem0");
  End b("mem1");
  const Background engine([&] {
    faultline_progress(a.context);
    faultline_progress(b.context);
  });
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    ibv_mr* const local = ibv_reg_mr(a.pd, from.data(), from.size(), kAllRights);
    ibv_mr* const remote = ibv_reg_mr(b.pd, to.data(), to.size(), kAllRights | IBV_ACCESS_MW_BIND);
    ibv_srq_init_attr init{nullptr, {16, 1, 0}};
    ibv_srq* const srq = ibv_create_srq(b.pd, &init);
    ibv_mw* const mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1);
    EXPECT_EQ(ibv_destroy_qp(a.qp), 0);
    EXPECT_EQ(ibv_destroy_qp(b.qp), 0);
    a.qp = make_qp(a, nullptr);
    b.qp = make_qp(b, srq);
    connect(a, b, 1);
    ibv_sge sge = sge_of(remote, 0, to.size());
    for (uint64_t i = 0; i < 8; ++i) {
      ibv_recv_wr wr{i, nullptr, &sge, 1};
      ibv_recv_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
    }
    ibv_mw_bind bind{};
    bind.bind_info = {remote, to.address(), 4096, IBV_ACCESS_REMOTE_WRITE};
    ASSERT_EQ(ibv_bind_mw(b.qp, mw, &bind), 0);
    ibv_sge out = sge_of(local, 0, from.size());
    for (int i = 0; i < 12; ++i) {
      ibv_send_wr wr{};
      wr.opcode = i % 2 == 0 ? IBV_WR_SEND : IBV_WR_RDMA_READ;
      wr.sg_list = &out;
      wr.num_sge = 1;
      wr.wr.rdma = {to.address(), remote->rkey};
      ASSERT_EQ(a.post_send(wr), 0);
    }
    for (int turn = 0; turn < round % 5; ++turn) std::this_thread::yield();
    EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
    End& first = round % 2 == 0 ? a : b;
    End& second = round % 2 == 0 ? b : a;
    EXPECT_EQ(ibv_destroy_qp(first.qp), 0);
    EXPECT_EQ(ibv_destroy_qp(second.qp), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
    EXPECT_EQ(ibv_dereg_mr(remote), 0);
    EXPECT_EQ(ibv_dereg_mr(local), 0);
    std::array<ibv_wc, 64> wc{};
    for (End* end : {&a, &b}) {
      while (ibv_poll_cq(end->cq, 64, wc.data()) > 0) {
      }
      end->make_qp({});
    }
  }
}

/// CVE-2026-45910: timers that fire while their QP is destroyed. Uses the shortest time-outs and RNR waits,
/// with a peer that is never ready.
TEST(Cve202645910, QpsGoWhileTheirTimersFire) {
  constexpr int kRounds = 30;
  const Pages pages(4096);
  End a("mem0");
  End b("mem1");
  ibv_mr* const mr = a.add_region(pages);
  const Background engine([&] {
    faultline_progress(a.context);
    faultline_progress(b.context);
  });
  for (int round = 0; round < kRounds; ++round) {
    connect(a, b, 1);  // 8 us
    ibv_sge sge = sge_of(mr, 0, 64);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;  // no receive is posted
    wr.sg_list = &sge;
    wr.num_sge = 1;
    for (int i = 0; i < 4; ++i) ASSERT_EQ(a.post_send(wr), 0);
    for (int turn = 0; turn < round % 40; ++turn) std::this_thread::yield();
    End& first = round % 2 == 0 ? a : b;
    End& second = round % 2 == 0 ? b : a;
    EXPECT_EQ(ibv_destroy_qp(first.qp), 0);
    for (int turn = 0; turn < round % 11; ++turn) std::this_thread::yield();
    EXPECT_EQ(ibv_destroy_qp(second.qp), 0);
    std::array<ibv_wc, 64> wc{};
    for (End* end : {&a, &b}) {
      EXPECT_GE(ibv_poll_cq(end->cq, 64, wc.data()), 0);
      end->make_qp({});
    }
  }
}

/// siw, CVE-2026-68417: packets and other threads found a QP before it was complete. Targets are opened by
/// number while they are created.
TEST(Cve202668417, AnXrcTargetIsFoundWhenItIsComplete) {
  constexpr int kRounds = 300;
  const End end("mem0");
  ibv_xrcd_init_attr init{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
  ibv_xrcd* const xrcd = ibv_open_xrcd(end.context, &init);
  ASSERT_NE(xrcd, nullptr);
  {
    std::atomic<uint32_t> guess{0};
    const Background opener([&] {
      ibv_qp_open_attr attr{IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
                            guess.load(), xrcd, nullptr, IBV_QPT_XRC_RECV};
      ibv_qp* const qp = ibv_open_qp(end.context, &attr);
      if (qp == nullptr) return;
      ibv_qp_attr queried{};
      ibv_qp_init_attr created{};
      ASSERT_EQ(ibv_query_qp(qp, &queried, IBV_QP_STATE, &created), 0);
      ASSERT_EQ(created.qp_type, IBV_QPT_XRC_RECV);
      ASSERT_EQ(ibv_destroy_qp(qp), 0);
    });
    for (int round = 0; round < kRounds; ++round) {
      ibv_qp_init_attr_ex wanted{};
      wanted.qp_type = IBV_QPT_XRC_RECV;
      wanted.comp_mask = IBV_QP_INIT_ATTR_XRCD;
      wanted.xrcd = xrcd;
      ibv_qp* const qp = ibv_create_qp_ex(end.context, &wanted);
      ASSERT_NE(qp, nullptr);
      guess = qp->qp_num;
      for (int turn = 0; turn < round % 5; ++turn) std::this_thread::yield();
      ASSERT_EQ(ibv_destroy_qp(qp), 0);
    }
  }
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

}  // namespace

}  // namespace faultline::verbs::test::threats_test
