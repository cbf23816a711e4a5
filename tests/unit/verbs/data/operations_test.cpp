// SPDX-License-Identifier: BSD-3-Clause
// Operations other than SEND, WRITE and READ, through both posting interfaces: atomics, ATOMIC WRITE, FLUSH,
// memory windows and invalidation.
#include <endian.h>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::operations_test {

namespace {

constexpr int kFlushRights = FAULTLINE_ACCESS_FLUSH_GLOBAL;
constexpr uint64_t kAllOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV |
                             IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                             IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE |
                             IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | FAULTLINE_QP_EX_WITH_FLUSH;

/// `a` is the requester, `b` the responder; both QPs have ibv_wr_*. The parameter is IBV_ACCESS_ON_DEMAND or
/// 0.
class Operations : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    for (End* end : {&a, &b}) {
      EXPECT_EQ(ibv_destroy_qp(end->qp), 0);
      ibv_qp_init_attr_ex init{};
      init.qp_type = IBV_QPT_RC;
      init.send_cq = init.recv_cq = end->cq;
      init.pd = end->pd;
      init.cap = {16, 16, 2, 2, 0};
      init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      init.send_ops_flags = kAllOps;
      end->qp = ibv_create_qp_ex(end->context, &init);
      ASSERT_NE(end->qp, nullptr);
    }
    qpx = ibv_qp_to_qp_ex(a.qp);
    local = a.add_region(from, kAllRights | GetParam());
    remote = b.add_region(to, kAllRights | IBV_ACCESS_MW_BIND | kFlushRights | GetParam());
    connect(a, b);
    ibv_qp_attr attr{};
    attr.qp_access_flags = kAllRights | kFlushRights | FAULTLINE_ACCESS_FLUSH_PERSISTENT;
    for (const End* end : {&a, &b}) {
      attr.qp_state = IBV_QPS_RTS;
      ASSERT_EQ(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
    }
  }
  [[nodiscard]] uint64_t& at(const Pages& pages, size_t index) const {
    return reinterpret_cast<uint64_t*>(pages.data())[index];
  }
  void start(uint64_t wr_id) const {
    ibv_wr_start(qpx);
    qpx->wr_id = wr_id;
    qpx->wr_flags = IBV_SEND_SIGNALED;
  }
  [[nodiscard]] ibv_wc run() const {
    EXPECT_EQ(ibv_wr_complete(qpx), 0);
    return completion(a, b);
  }
  ibv_send_wr atomic(ibv_wr_opcode opcode, uint64_t compare_add, uint64_t swap, size_t index = 0) {
    sge = sge_of(local, 0, 8);
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.atomic = {to.address() + index * 8, compare_add, swap, remote->rkey};
    return wr;
  }
  /// Returns a window of b, bound to all of `to` by a posted request.
  ibv_mw* bound_window(unsigned int access = kAllRights & ~IBV_ACCESS_LOCAL_WRITE) {
    ibv_mw* const mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
    EXPECT_NE(mw, nullptr);
    EXPECT_EQ(post_bind(mw, ibv_inc_rkey(mw->rkey), access), 0);
    EXPECT_EQ(completion(b, a).status, IBV_WC_SUCCESS);
    return mw;
  }
  [[nodiscard]] int post_bind(ibv_mw* mw, uint32_t rkey, unsigned int access,
                              size_t length_bytes = 4096) const {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw = {mw, rkey, {remote, to.address(), length_bytes, access}};
    return b.post_send(wr);
  }
  [[nodiscard]] ibv_wc_status write_through(uint32_t rkey, uint64_t va, uint32_t bytes = 64) const {
    start(50);
    ibv_wr_rdma_write(qpx, rkey, va);
    ibv_wr_set_sge(qpx, local->lkey, from.address(), bytes);
    return run().status;
  }

  End a{"mem0"};
  End b{"mem1"};
  const Pages from{4096};
  const Pages to{8192};
  ibv_qp_ex* qpx = nullptr;
  ibv_mr* local = nullptr;
  ibv_mr* remote = nullptr;
  ibv_sge sge{};
};

INSTANTIATE_TEST_SUITE_P(Memory, Operations, ::testing::Values(0, static_cast<int>(IBV_ACCESS_ON_DEMAND)),
                         [](const auto& memory) { return memory.param == 0 ? "Pinned" : "OnDemand"; });

TEST_P(Operations, CompareAndSwapSwapsWhereItCompares) {
  at(to, 3) = 41;
  ASSERT_EQ(a.post_send(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 40, 99, 3)), 0);
  ibv_wc wc = completion(a, b);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(wc.byte_len, 8U);
  EXPECT_EQ(at(from, 0), 41U) << "what was there, in the host's order";
  EXPECT_EQ(at(to, 3), 41U);
  start(2);
  ibv_wr_atomic_cmp_swp(qpx, remote->rkey, to.address() + 24, 41, 0x1122334455667788);
  ibv_wr_set_sge(qpx, local->lkey, from.address() + 8, 8);
  wc = run();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(at(from, 1), 41U);
  EXPECT_EQ(at(to, 3), 0x1122334455667788U);
}

TEST_P(Operations, FetchAndAddAdds) {
  at(to, 1) = UINT64_MAX;
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(a.post_send(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0, 1)), 0);
    const ibv_wc wc = completion(a, b);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_FETCH_ADD);
    EXPECT_EQ(at(from, 0), UINT64_MAX + 5 * i) << "it wraps";
  }
  start(2);
  ibv_wr_atomic_fetch_add(qpx, remote->rkey, to.address() + 8, 1);
  ibv_wr_set_sge(qpx, local->lkey, from.address(), 8);
  EXPECT_EQ(run().opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(at(to, 1), UINT64_MAX + 101U);
}

TEST_P(Operations, AnAtomicOffItsAlignmentIsAnInvalidRequest) {
  ibv_send_wr wr = atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0);
  wr.wr.atomic.remote_addr += 4;
  ASSERT_EQ(a.post_send(wr), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_P(Operations, AtomicWriteStoresEightBytes) {
  start(1);
  const uint64_t value = 0x0102030405060708;
  ibv_wr_atomic_write(qpx, remote->rkey, to.address() + 16, &value);
  ibv_wc wc = run();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
  EXPECT_EQ(at(to, 2), value) << "the bytes as they stand";
  at(from, 0) = 77;
  ibv_send_wr wr = atomic(IBV_WR_ATOMIC_WRITE, 0, 0);
  wr.wr.rdma = {to.address() + 16, remote->rkey};
  ASSERT_EQ(a.post_send(wr), 0) << "from memory too";
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(at(to, 2), 77U);
}

TEST_P(Operations, FlushCompletesForRangeAndRegion) {
  for (const uint8_t level : {FAULTLINE_FLUSH_RANGE, FAULTLINE_FLUSH_MR}) {
    SCOPED_TRACE(level);
    start(7);
    qpx->wr_flags = 0;
    ibv_wr_rdma_write(qpx, remote->rkey, to.address());
    ibv_wr_set_sge(qpx, local->lkey, from.address(), 4096);
    qpx->wr_flags = IBV_SEND_SIGNALED;
    faultline_wr_flush(qpx, remote->rkey, to.address(), 4096, FAULTLINE_FLUSH_GLOBAL, level);
    const ibv_wc wc = run();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(static_cast<int>(wc.opcode), FAULTLINE_WC_FLUSH);
  }
}

/// rdma-core 45 and later: ibv_wr_flush(3) is inline, and calls the member after wr_atomic_write, whatever
/// the header that this was compiled with.
TEST_P(Operations, FlushIsWhereNewerHeadersCallIt) {
  using Flush = void (*)(ibv_qp_ex*, uint32_t, uint64_t, size_t, uint8_t, uint8_t);
  constexpr size_t kPlace = offsetof(ibv_qp_ex, wr_atomic_write) + sizeof(Flush);
  Flush flush = nullptr;
  std::memcpy(&flush, reinterpret_cast<const uint8_t*>(qpx) + kPlace, sizeof flush);
  ASSERT_NE(flush, nullptr);
  start(7);
  flush(qpx, remote->rkey, to.address(), 4096, FAULTLINE_FLUSH_GLOBAL, FAULTLINE_FLUSH_RANGE);
  EXPECT_EQ(run().status, IBV_WC_SUCCESS);
}

TEST_P(Operations, FlushNeedsTheRegionsRight) {
  EXPECT_EQ(ibv_reg_mr(b.pd, to.data(), to.size(), kAllRights | FAULTLINE_ACCESS_FLUSH_PERSISTENT), nullptr)
      << "no memory here is kept across a power loss";
  start(8);
  faultline_wr_flush(qpx, remote->rkey, to.address(), 64, FAULTLINE_FLUSH_PERSISTENT, FAULTLINE_FLUSH_RANGE);
  EXPECT_EQ(run().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Operations, AWindowOfTypeOneIsBoundMovedAndUnbound) {
  ibv_mw* const mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  EXPECT_EQ(mw->type, IBV_MW_TYPE_1);
  const uint32_t unbound = mw->rkey;
  ibv_mw_bind bind{};
  bind.wr_id = 3;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {remote, to.address() + 64, 128, IBV_ACCESS_REMOTE_WRITE};
  ASSERT_EQ(ibv_bind_mw(b.qp, mw, &bind), 0);
  EXPECT_EQ(mw->rkey, ibv_inc_rkey(unbound)) << "known at once";
  const ibv_wc wc = completion(b, a);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(wc.wr_id, 3U);
  from.fill(9);
  EXPECT_EQ(write_through(mw->rkey, to.address() + 64), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(to.data() + 64, from.data(), 64), 0);
  EXPECT_EQ(ibv_dereg_mr(remote), EBUSY) << "ibv_alloc_mw(3)";
  const uint32_t key = remote->rkey;
  EXPECT_EQ(ibv_rereg_mr(remote, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, to.data(), 64, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EBUSY);
  EXPECT_EQ(remote->rkey, key) << "as it was, and no second region holds the domain";

  const uint32_t first = mw->rkey;
  bind.bind_info.addr = to.address() + 1024;
  ASSERT_EQ(ibv_bind_mw(b.qp, mw, &bind), 0);
  EXPECT_EQ(completion(b, a).status, IBV_WC_SUCCESS);
  EXPECT_NE(mw->rkey, first);
  EXPECT_EQ(write_through(mw->rkey, to.address() + 1024), IBV_WC_SUCCESS);

  bind.bind_info = {};
  ASSERT_EQ(ibv_bind_mw(b.qp, mw, &bind), 0) << "no length: unbound";
  EXPECT_EQ(completion(b, a).status, IBV_WC_SUCCESS);
  EXPECT_EQ(write_through(mw->rkey, to.address() + 1024), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_P(Operations, BindsAreChecked) {
  ibv_mw* const first = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1);
  ibv_mw* const second = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
  ibv_mw_bind bind{};
  bind.bind_info = {remote, to.address(), 64, IBV_ACCESS_REMOTE_READ};
  EXPECT_EQ(ibv_bind_mw(b.qp, second, &bind), EINVAL) << "type 2 is posted";
  bind.send_flags = IBV_SEND_INLINE;
  EXPECT_EQ(ibv_bind_mw(b.qp, first, &bind), EINVAL);
  bind.send_flags = 0;
  bind.bind_info.mw_access_flags = IBV_ACCESS_MW_BIND;
  EXPECT_EQ(ibv_bind_mw(b.qp, first, &bind), EINVAL);
  EXPECT_EQ(post_bind(first, ibv_inc_rkey(first->rkey), 0), EINVAL) << "type 1 is not";
  EXPECT_EQ(post_bind(second, second->rkey + 0x100, 0), EINVAL) << "another window's key";
  EXPECT_EQ(post_bind(nullptr, 0, 0), EINVAL);
  End other("mem1");
  ibv_mw* const foreign = ibv_alloc_mw(other.pd, IBV_MW_TYPE_2);
  EXPECT_EQ(post_bind(foreign, ibv_inc_rkey(foreign->rkey), 0), EINVAL) << "another domain's window";
  EXPECT_EQ(ibv_dealloc_mw(foreign), 0);
  EXPECT_EQ(ibv_dealloc_pd(b.pd), EBUSY) << "windows hold their domain";
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(b.pd, static_cast<ibv_mw_type>(3)), nullptr);
  EXPECT_EQ(errno, EINVAL);

  // Beyond the region's end: detected at execution.
  const uint32_t before = second->rkey;
  ASSERT_EQ(post_bind(second, ibv_inc_rkey(before), IBV_ACCESS_REMOTE_READ, 1 << 20), 0);
  EXPECT_EQ(completion(b, a).status, IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(ibv_dealloc_mw(first), 0);
  EXPECT_EQ(ibv_dealloc_mw(second), 0) << "though the bind failed";
}

TEST_P(Operations, AWindowOfTypeTwoIsInvalidatedByItsOwner) {
  ibv_mw* const mw = bound_window();
  from.fill(4);
  EXPECT_EQ(write_through(mw->rkey, to.address()), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(to.data(), from.data(), 64), 0);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = mw->rkey;
  ASSERT_EQ(b.post_send(wr), 0);
  const ibv_wc wc = completion(b, a);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
  EXPECT_EQ(write_through(mw->rkey, to.address()), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_P(Operations, ASendInvalidatesThePeersWindow) {
  ibv_mw* const mw = bound_window();
  EXPECT_EQ(write_through(mw->rkey, to.address()), IBV_WC_SUCCESS);
  ASSERT_EQ(b.post_receive(8, {}), 0);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND_WITH_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = mw->rkey;
  ASSERT_EQ(a.post_send(wr), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  const ibv_wc received = completion(b, a);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.wc_flags, static_cast<unsigned int>(IBV_WC_WITH_INV));
  EXPECT_EQ(received.invalidated_rkey, mw->rkey);
  EXPECT_EQ(write_through(mw->rkey, to.address()), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

/// rxe 7.2.12 panics on a second invalidation of the same window.
TEST_P(Operations, TheSecondInvalidationOfAWindowIsANak) {
  ibv_mw* const mw = bound_window();
  ASSERT_EQ(b.post_receive(8, {}), 0);
  ASSERT_EQ(b.post_receive(9, {}), 0);
  for (const ibv_wc_status expected : {IBV_WC_SUCCESS, IBV_WC_REM_ACCESS_ERR}) {
    start(1);
    ibv_wr_send_inv(qpx, mw->rkey);
    const ibv_wc wc = run();
    if (expected == IBV_WC_SUCCESS) {
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    } else {
      EXPECT_NE(wc.status, IBV_WC_SUCCESS);
    }
  }
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_P(Operations, AWindowsRightsAreItsOwn) {
  ibv_mw* const reads = bound_window(IBV_ACCESS_REMOTE_READ | FAULTLINE_ACCESS_FLUSH_GLOBAL);
  start(1);
  ibv_wr_rdma_read(qpx, reads->rkey, to.address());
  ibv_wr_set_sge(qpx, local->lkey, from.address(), 64);
  EXPECT_EQ(run().status, IBV_WC_SUCCESS);
  for (const uint8_t level : {FAULTLINE_FLUSH_RANGE, FAULTLINE_FLUSH_MR}) {
    start(2);
    faultline_wr_flush(qpx, reads->rkey, to.address(), 64, FAULTLINE_FLUSH_GLOBAL, level);
    EXPECT_EQ(run().status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(write_through(reads->rkey, to.address()), IBV_WC_REM_ACCESS_ERR) << "though the region allows it";
  EXPECT_EQ(ibv_dealloc_mw(reads), 0);
}

TEST_P(Operations, TheExtendedInterfaceBindsAndInvalidates) {
  ibv_mr* const own = a.add_region(to, kAllRights | IBV_ACCESS_MW_BIND);
  ibv_mw* const mw = ibv_alloc_mw(a.pd, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  const uint32_t key = ibv_inc_rkey(mw->rkey);
  const ibv_mw_bind_info info{own, to.address(), 4096, IBV_ACCESS_REMOTE_READ};
  start(1);
  ibv_wr_bind_mw(qpx, mw, key, &info);
  qpx->wr_id = 2;
  ibv_wr_local_inv(qpx, key);
  EXPECT_EQ(ibv_wr_complete(qpx), 0);
  const std::vector<ibv_wc> done = completions(a, b, 2);
  EXPECT_EQ(done[0].opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(done[1].opcode, IBV_WC_LOCAL_INV);
  EXPECT_EQ(done[1].status, IBV_WC_SUCCESS);
  // Binds again, although the window's handle still has the old key.
  start(3);
  ibv_wr_bind_mw(qpx, mw, ibv_inc_rkey(key), &info);
  EXPECT_EQ(run().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

/// CVE-2021-47076, for the operations of issue 3: a bad lkey caused no completion.
TEST_P(Operations, ABadLkeyIsACompletionWithAnError) {
  for (const ibv_wr_opcode opcode :
       {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE, IBV_WR_SEND_WITH_INV}) {
    SCOPED_TRACE(opcode);
    End x("mem0");
    End y("mem1");
    ibv_mr* const target = y.add_region(to, kAllRights | GetParam());
    connect(x, y);
    ibv_sge bad{from.address(), 8, 0xdead00};
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.sg_list = &bad;
    wr.num_sge = 1;
    wr.wr.atomic = {to.address(), 0, 0, target->rkey};
    if (opcode == IBV_WR_ATOMIC_WRITE) wr.wr.rdma = {to.address(), target->rkey};
    ASSERT_EQ(x.post_send(wr), 0);
    const ibv_wc wc = completion(x, y);
    EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
  }
}

}  // namespace

}  // namespace faultline::verbs::test::operations_test
