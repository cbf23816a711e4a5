// SPDX-License-Identifier: BSD-3-Clause
// ibv_wr_*: requests built in place, posted all or none.
#include <functional>
#include <thread>

#include <endian.h>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::extended_qp_test {

namespace {

constexpr uint64_t kRcOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                            IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ;

/// Creates the end's QP again, for ibv_wr_*. Returns nullptr and sets errno on failure.
ibv_qp_ex* make_extended(End& end, ibv_qp_type type, uint64_t ops, uint32_t depth = 16, uint32_t sges = 3,
                         uint32_t inline_bytes = 64) {
  if (end.qp != nullptr) {
    EXPECT_EQ(ibv_destroy_qp(end.qp), 0);
  }
  ibv_qp_init_attr_ex init{};
  init.qp_type = type;
  init.send_cq = init.recv_cq = end.cq;
  init.pd = end.pd;
  init.cap = {depth, depth, sges, sges, inline_bytes};
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.send_ops_flags = ops;
  errno = 0;
  end.qp = ibv_create_qp_ex(end.context, &init);
  return end.qp == nullptr ? nullptr : ibv_qp_to_qp_ex(end.qp);
}

class ExtendedQp : public ::testing::Test {
 protected:
  void SetUp() override {
    qpx = make_extended(a, IBV_QPT_RC, kRcOps);
    ASSERT_NE(qpx, nullptr);
    local = a.add_region(from);
    remote = b.add_region(to);
    connect(a, b);
    from.fill(1);
  }
  void start(uint64_t wr_id, unsigned int flags = IBV_SEND_SIGNALED) const {
    ibv_wr_start(qpx);
    qpx->wr_id = wr_id;
    qpx->wr_flags = flags;
  }
  /// Checks that nothing was posted: there is no completion, and the queue is empty.
  void expect_nothing_posted() const {
    for (int turn = 0; turn < 50; ++turn) {
      faultline_progress(b.context);
      ibv_wc wc{};
      ASSERT_EQ(ibv_poll_cq(a.cq, 1, &wc), 0);
    }
  }
  End a{"mem0"};
  End b{"mem1"};
  const Pages from{8192};
  const Pages to{8192};
  ibv_qp_ex* qpx = nullptr;
  ibv_mr* local = nullptr;
  ibv_mr* remote = nullptr;
};

TEST(ExtendedQps, OnlyThoseMadeForItHaveTheInterface) {
  End a("mem0");
  EXPECT_EQ(ibv_qp_to_qp_ex(a.qp), nullptr);
  EXPECT_NE(make_extended(a, IBV_QPT_RC, kRcOps), nullptr);
}

TEST(ExtendedQps, AnOperationThatTheTypeLacksIsRefused) {
  End a("mem0");
  for (const uint64_t op : {uint64_t{IBV_QP_EX_WITH_TSO}, uint64_t{1} << 13, uint64_t{1} << 40})
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
      EXPECT_EQ(make_extended(a, type, op), nullptr);
      EXPECT_EQ(errno, EOPNOTSUPP);
    }
  for (const uint64_t op : {uint64_t{IBV_QP_EX_WITH_RDMA_READ}, uint64_t{IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD},
                            uint64_t{IBV_QP_EX_WITH_SEND_WITH_INV}, uint64_t{FAULTLINE_QP_EX_WITH_FLUSH}}) {
    EXPECT_EQ(make_extended(a, IBV_QPT_UC, op), nullptr);
    EXPECT_NE(make_extended(a, IBV_QPT_RC, op), nullptr);
  }
  EXPECT_EQ(make_extended(a, IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE), nullptr);
  EXPECT_NE(make_extended(a, IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM), nullptr);
}

/// rdma-core pull 1744: the length of the first element was added once for each element.
TEST_F(ExtendedQp, AListOfElementsHasEachElementsLength) {
  ASSERT_EQ(b.post_receive(1, {sge_of(remote, 0, 8192)}), 0);
  std::array<ibv_sge, 3> list{sge_of(local, 4000, 7), sge_of(local, 0, 2000), sge_of(local, 100, 300)};
  start(9);
  ibv_wr_send(qpx);
  ibv_wr_set_sge_list(qpx, list.size(), list.data());
  ASSERT_EQ(ibv_wr_complete(qpx), 0);
  EXPECT_EQ(completion(a, b).wr_id, 9U);
  EXPECT_EQ(completion(b, a).byte_len, 2307U);
  EXPECT_EQ(std::memcmp(to.data(), from.data() + 4000, 7), 0);
  EXPECT_EQ(std::memcmp(to.data() + 7, from.data(), 2000), 0);
  EXPECT_EQ(std::memcmp(to.data() + 2007, from.data() + 100, 300), 0);
}

TEST_F(ExtendedQp, SeveralRequestsOfOneBatchRunInOrder) {
  ASSERT_EQ(b.post_receive(1, {sge_of(remote, 4096, 100)}), 0);
  ASSERT_EQ(b.post_receive(2, {}), 0);
  start(1, 0);
  ibv_wr_rdma_write(qpx, remote->rkey, to.address());
  ibv_wr_set_sge(qpx, local->lkey, from.address(), 1000);
  qpx->wr_id = 2;
  ibv_wr_send_imm(qpx, htobe32(5));
  ibv_wr_set_inline_data(qpx, from.data() + 10, 20);
  qpx->wr_id = 3;
  qpx->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write_imm(qpx, remote->rkey, to.address() + 2000, htobe32(6));
  ibv_wr_set_sge(qpx, local->lkey, from.address() + 500, 30);
  ASSERT_EQ(ibv_wr_complete(qpx), 0);
  EXPECT_EQ(completion(a, b).wr_id, 3U);
  const std::vector<ibv_wc> received = completions(b, a, 2);
  EXPECT_EQ(received[0].wr_id, 1U);
  EXPECT_EQ(received[0].byte_len, 20U);
  EXPECT_EQ(be32toh(received[0].imm_data), 5U);
  EXPECT_EQ(received[1].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(be32toh(received[1].imm_data), 6U);
  EXPECT_EQ(std::memcmp(to.data(), from.data(), 1000), 0);
  EXPECT_EQ(std::memcmp(to.data() + 4096, from.data() + 10, 20), 0);
  EXPECT_EQ(std::memcmp(to.data() + 2000, from.data() + 500, 30), 0);

  start(4);
  ibv_wr_rdma_read(qpx, remote->rkey, to.address());
  ibv_wr_set_sge(qpx, local->lkey, from.address() + 4096, 1000);
  ASSERT_EQ(ibv_wr_complete(qpx), 0);
  EXPECT_EQ(completion(a, b).opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(std::memcmp(from.data() + 4096, to.data(), 1000), 0);
}

TEST_F(ExtendedQp, InlineDataIsCopiedWhenItIsSet) {
  std::array<uint8_t, 24> data{};
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i + 1);
  const std::array<uint8_t, 24> expected = data;
  const std::array<ibv_data_buf, 3> parts{{{data.data(), 4}, {nullptr, 0}, {data.data() + 4, 20}}};
  start(1);
  ibv_wr_rdma_write(qpx, remote->rkey, to.address());
  ibv_wr_set_inline_data_list(qpx, parts.size(), parts.data());
  data.fill(0);
  ASSERT_EQ(ibv_wr_complete(qpx), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(to.data(), expected.data(), expected.size()), 0);
}

// Elements and inline data share their storage: a request with both would send the bytes that follow the
// inline data.
TEST_F(ExtendedQp, ARequestHasElementsOrInlineDataAndNotBoth) {
  const auto inline_data = [&] { ibv_wr_set_inline_data(qpx, from.data(), 8); };
  const auto element = [&] { ibv_wr_set_sge(qpx, local->lkey, from.address(), 4096); };
  const auto no_elements = [&] { ibv_wr_set_sge_list(qpx, 0, nullptr); };
  const std::array<std::function<void()>, 4> mistakes{
      [&] { inline_data(), element(); }, [&] { element(), inline_data(); },
      [&] { inline_data(), no_elements(); },
      [&] {
        const std::array<ibv_data_buf, 1> parts{{{from.data(), 8}}};
        element(), ibv_wr_set_inline_data_list(qpx, parts.size(), parts.data());
      }};
  for (size_t i = 0; i < mistakes.size(); ++i) {
    SCOPED_TRACE(i);
    start(1);
    ibv_wr_rdma_write(qpx, remote->rkey, to.address());
    mistakes[i]();
    EXPECT_EQ(ibv_wr_complete(qpx), EINVAL);
    expect_nothing_posted();
  }
  start(1);
  ibv_wr_rdma_write(qpx, remote->rkey, to.address());
  no_elements();
  inline_data();
  ASSERT_EQ(ibv_wr_complete(qpx), 0) << "an empty list says nothing";
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
}

TEST_F(ExtendedQp, AnAbortLeavesNothing) {
  start(1);
  for (int i = 0; i < 5; ++i) {
    ibv_wr_rdma_write(qpx, remote->rkey, to.address());
    ibv_wr_set_sge(qpx, local->lkey, from.address(), 64);
  }
  ibv_wr_abort(qpx);
  expect_nothing_posted();
  start(2);
  ibv_wr_rdma_write(qpx, remote->rkey, to.address());
  ibv_wr_set_sge(qpx, local->lkey, from.address(), 64);
  ASSERT_EQ(ibv_wr_complete(qpx), 0);
  EXPECT_EQ(completion(a, b).wr_id, 2U);
}

TEST_F(ExtendedQp, AnErrorAppearsAtCompleteAndNothingIsPosted) {
  const auto good = [&] {
    ibv_wr_rdma_write(qpx, remote->rkey, to.address());
    ibv_wr_set_sge(qpx, local->lkey, from.address(), 64);
  };
  const std::array<ibv_sge, 4> four{sge_of(local, 0, 1), sge_of(local, 0, 1), sge_of(local, 0, 1),
                                    sge_of(local, 0, 1)};
  const std::array<std::function<void()>, 8> mistakes{
      [&] {  // more elements than the queue's
        ibv_wr_send(qpx);
        ibv_wr_set_sge_list(qpx, four.size(), four.data());
      },
      [&] {  // more inline data than the queue's
        ibv_wr_send(qpx);
        ibv_wr_set_inline_data(qpx, from.data(), 65);
      },
      [&] {  // a READ sends no data
        ibv_wr_rdma_read(qpx, remote->rkey, to.address());
        ibv_wr_set_inline_data(qpx, from.data(), 8);
      },
      [&] {  // no such flag
        qpx->wr_flags = 1U << 9;
        good();
        qpx->wr_flags = 0;
      },
      [&] {  // an atomic has eight bytes
        ibv_wr_atomic_fetch_add(qpx, remote->rkey, to.address(), 1);
        ibv_wr_set_sge(qpx, local->lkey, from.address(), 4);
      },
      [&] {  // an address on a connected QP
        ibv_wr_send(qpx);
        ibv_wr_set_ud_addr(qpx, nullptr, 1, 1);
      },
      [&] {  // exceeds the longest message
        const std::array<ibv_sge, 2> halves{sge_of(local, 0, 1U << 31), sge_of(local, 0, 1)};
        ibv_wr_send(qpx);
        ibv_wr_set_sge_list(qpx, halves.size(), halves.data());
      },
      [&] {  // no FLUSH type
        faultline_wr_flush(qpx, remote->rkey, to.address(), 64, 0, FAULTLINE_FLUSH_RANGE);
      }};
  for (size_t i = 0; i < mistakes.size(); ++i) {
    SCOPED_TRACE(i);
    start(1);
    good();
    mistakes[i]();
    good();
    EXPECT_EQ(ibv_wr_complete(qpx), EINVAL);
    expect_nothing_posted();
  }
  start(1);
  ibv_wr_send_tso(qpx, nullptr, 0, 0);
  EXPECT_EQ(ibv_wr_complete(qpx), EOPNOTSUPP);
  start(1);
  for (int i = 0; i < 17; ++i) good();
  EXPECT_EQ(ibv_wr_complete(qpx), ENOMEM) << "sixteen fit";
  expect_nothing_posted();
  start(1);
  for (int i = 0; i < 16; ++i) good();
  EXPECT_EQ(ibv_wr_complete(qpx), 0);
  EXPECT_EQ(completions(a, b, 16).back().status, IBV_WC_SUCCESS);
}

TEST_F(ExtendedQp, TheStateDecidesAsItDoesForAPost) {
  ibv_qp_attr reset{};
  ASSERT_EQ(ibv_modify_qp(a.qp, &reset, IBV_QP_STATE), 0);
  start(1);
  ibv_wr_send(qpx);
  EXPECT_EQ(ibv_wr_complete(qpx), EINVAL);
}

TEST_F(ExtendedQp, ThreadsHaveTheCriticalRegionOneByOne) {
  constexpr int kThreads = 3;
  constexpr int kBatches = 400;
  std::atomic<bool> stop{false};
  std::thread peer([&] {
    while (!stop) {
      faultline_progress(b.context);
      std::this_thread::yield();
    }
  });
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kBatches;) {
        ibv_wr_start(qpx);
        qpx->wr_flags = IBV_SEND_SIGNALED;
        for (int k = 0; k < 2; ++k) {
          qpx->wr_id = static_cast<uint64_t>(t);
          ibv_wr_rdma_write(qpx, remote->rkey, to.address());
          ibv_wr_set_sge(qpx, local->lkey, from.address(), 8);
        }
        const int error = ibv_wr_complete(qpx);
        if (error == 0) ++i;
        ASSERT_TRUE(error == 0 || error == ENOMEM);
        std::array<ibv_wc, 8> wc{};
        const int got = ibv_poll_cq(a.cq, 8, wc.data());
        ASSERT_GE(got, 0);
        done += got;
      }
    });
  for (std::thread& thread : threads) thread.join();
  while (done < 2 * kThreads * kBatches) {
    ibv_wc wc{};
    done += ibv_poll_cq(a.cq, 1, &wc);
  }
  stop = true;
  peer.join();
  EXPECT_EQ(done, 2 * kThreads * kBatches);
}

TEST(ExtendedUd, EachDatagramNeedsItsAddress) {
  EndOptions ud;
  ud.type = IBV_QPT_UD;
  const Pages pages(8192);
  End a("mem0");
  End b("mem1", ud);
  ibv_qp_ex* const qpx = make_extended(a, IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
  ASSERT_NE(qpx, nullptr);
  connect(a, b);
  ibv_mr* const mr = b.add_region(pages);
  ASSERT_EQ(b.post_receive(1, {sge_of(mr, 0, 2048)}), 0);
  ibv_ah_attr route = End::rtr_attributes(b.gid(), 0).ah_attr;
  ibv_ah* const ah = ibv_create_ah(a.pd, &route);
  ASSERT_NE(ah, nullptr);
  std::array<uint8_t, 8> data{1, 2, 3, 4, 5, 6, 7, 8};
  ibv_wr_start(qpx);
  ibv_wr_send(qpx);
  ibv_wr_set_inline_data(qpx, data.data(), data.size());
  EXPECT_EQ(ibv_wr_complete(qpx), EINVAL) << "no address";
  ibv_wr_start(qpx);
  ibv_wr_send(qpx);
  ibv_wr_set_ud_addr(qpx, nullptr, b.qp->qp_num, kQkey);
  EXPECT_EQ(ibv_wr_complete(qpx), EINVAL) << "no handle";
  ibv_wr_start(qpx);
  ibv_wr_send_imm(qpx, htobe32(3));
  ibv_wr_set_ud_addr(qpx, ah, b.qp->qp_num, kQkey);
  ibv_wr_set_inline_data(qpx, data.data(), data.size());
  ASSERT_EQ(ibv_wr_complete(qpx), 0);
  const ibv_wc wc = completion(b, a);
  EXPECT_EQ(wc.byte_len, 48U);
  EXPECT_EQ(be32toh(wc.imm_data), 3U);
  EXPECT_EQ(std::memcmp(pages.data() + 40, data.data(), data.size()), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

}  // namespace

}  // namespace faultline::verbs::test::extended_qp_test
