// SPDX-License-Identifier: BSD-3-Clause
// What a program sees when a request fails: the status, the event at the peer, the flushed work requests
// after it, and unchanged memory at the peer.
#include <algorithm>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::error_test {

namespace {

constexpr size_t kBytes = 8192;
constexpr uint8_t kUntouched = 0xa5;

class RemoteError : public ::testing::TestWithParam<ibv_wr_opcode> {
 protected:
  void SetUp() override {
    local = a.add_region(from);
    connect(a, b);
    from.fill(1);
    std::memset(to.data(), kUntouched, to.size());
  }
  /// Checks that the requester's failure describes the request. The responder reports its NAK apart from it.
  static void expect_failure(const ibv_send_wr& wr, uint32_t bytes) {
    size_t described = 0;
    for (const transport::QpFailure& failure : take_failures()) {
      if (failure.nak_sent) continue;
      ++described;
      EXPECT_TRUE(failure.has_request);
      EXPECT_EQ(static_cast<ibv_wr_opcode>(failure.opcode), wr.opcode);
      EXPECT_EQ(failure.length_bytes, bytes);
      EXPECT_EQ(failure.remote_va, wr.wr.rdma.remote_addr);
      EXPECT_EQ(failure.rkey, wr.wr.rdma.rkey);
    }
    EXPECT_EQ(described, 1U);
  }
  /// Checks that the peer refuses the request, raises an event, and that no byte changes on either side.
  void expect_refused(uint64_t remote_va, uint32_t rkey, uint32_t bytes = 64) {
    const std::vector<uint8_t> before(from.data(), from.data() + from.size());
    if (GetParam() == IBV_WR_RDMA_WRITE_WITH_IMM) {
      ASSERT_EQ(b.post_receive(8, {}), 0);
    }
    ibv_sge sge = sge_of(local, 0, bytes);
    ibv_send_wr wr{};
    wr.wr_id = 3;
    wr.opcode = GetParam();
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma = {remote_va, rkey};
    static_cast<void>(take_failures());
    ASSERT_EQ(a.post_send(wr), 0);
    const ibv_wc wc = completion(a, b);
    EXPECT_EQ(wc.wr_id, 3U);
    expect_failure(wr, bytes);
    EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(b.context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    EXPECT_EQ(event.element.qp, b.qp);
    ibv_ack_async_event(&event);
    EXPECT_EQ(std::count(to.data(), to.data() + to.size(), kUntouched), static_cast<ptrdiff_t>(to.size()));
    EXPECT_EQ(std::memcmp(from.data(), before.data(), before.size()), 0);
  }
  End a{"mem0"};
  End b{"mem1"};
  const Pages from{kBytes};
  const Pages to{kBytes};
  ibv_mr* local = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Opcodes, RemoteError,
                         ::testing::Values(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ),
                         [](const auto& opcode) {
                           switch (opcode.param) {
                             case IBV_WR_RDMA_WRITE:
                               return "Write";
                             case IBV_WR_RDMA_WRITE_WITH_IMM:
                               return "WriteWithImm";
                             default:
                               return "Read";
                           }
                         });

TEST_P(RemoteError, AKeyOfNoRegion) {
  expect_refused(to.address(), 0xdead00);
}

TEST_P(RemoteError, AStaleKey) {
  ibv_mr* const mr = ibv_reg_mr(b.pd, to.data(), to.size(), kAllRights);
  ASSERT_NE(mr, nullptr);
  const uint32_t rkey = mr->rkey;
  ASSERT_EQ(ibv_dereg_mr(mr), 0);
  expect_refused(to.address(), rkey);
}

TEST_P(RemoteError, ARegionOfAnotherDomain) {
  ibv_pd* const other = ibv_alloc_pd(b.context);
  ibv_mr* const mr = ibv_reg_mr(other, to.data(), to.size(), kAllRights);
  ASSERT_NE(mr, nullptr);
  expect_refused(to.address(), mr->rkey);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_P(RemoteError, ARegionWithoutTheRight) {
  const int right = GetParam() == IBV_WR_RDMA_READ ? static_cast<int>(IBV_ACCESS_REMOTE_READ)
                                                   : static_cast<int>(IBV_ACCESS_REMOTE_WRITE);
  expect_refused(to.address(), b.add_region(to, kAllRights & ~right)->rkey);
}

TEST_P(RemoteError, OneByteBeyondTheEnd) {
  const ibv_mr* const mr = b.add_region(to);
  expect_refused(to.address() + kBytes - 63, mr->rkey);
}

TEST_P(RemoteError, AnAddressThatWraps) {
  expect_refused(~uint64_t{0} - 15, b.add_region(to)->rkey);
}

class LocalError : public ::testing::Test {
 protected:
  void SetUp() override {
    local = a.add_region(from);
    remote = b.add_region(to);
  }
  ibv_send_wr write(uint64_t wr_id, uint32_t rkey, unsigned flags = 0) {
    sge = sge_of(local, 0, 64);
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = flags;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma = {to.address(), rkey};
    return wr;
  }
  ibv_send_wr send(uint64_t wr_id, uint32_t bytes) {
    ibv_send_wr wr = write(wr_id, 0);
    sge.length = bytes;
    wr.opcode = IBV_WR_SEND;
    return wr;
  }
  static int set_retries(const End& end, uint8_t retry_count, uint8_t rnr_retry, uint8_t timeout) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = 0xfffffe;
    attr.retry_cnt = retry_count;
    attr.rnr_retry = rnr_retry;
    attr.timeout = timeout;
    attr.max_rd_atomic = 4;
    return ibv_modify_qp(end.qp, &attr,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_MAX_QP_RD_ATOMIC);
  }
  void connect_with(uint8_t retry_count, uint8_t rnr_retry, uint8_t timeout) {
    ASSERT_EQ(a.to_init(), 0);
    ASSERT_EQ(b.to_init(), 0);
    ASSERT_EQ(a.to_rtr(b.gid(), b.qp->qp_num), 0);
    ASSERT_EQ(b.to_rtr(a.gid(), a.qp->qp_num), 0);
    ASSERT_EQ(set_retries(a, retry_count, rnr_retry, timeout), 0);
    ASSERT_EQ(b.to_rts(), 0);
  }
  static ibv_qp_state state_of(const End& end) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(end.qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
  }
  End a{"mem0"};
  End b{"mem1"};
  const Pages from{kBytes};
  const Pages to{kBytes};
  ibv_mr* local = nullptr;
  ibv_mr* remote = nullptr;
  ibv_sge sge{};
};

TEST_F(LocalError, EverythingBehindAFailureIsFlushedInOrder) {
  connect(a, b);
  for (uint64_t id = 20; id < 24; ++id) ASSERT_EQ(a.post_receive(id, {}), 0);
  ASSERT_EQ(a.post_send(write(0, remote->rkey, IBV_SEND_SIGNALED)), 0);
  ASSERT_EQ(a.post_send(write(1, 0xdead00)), 0);
  for (uint64_t id = 2; id < 6; ++id) ASSERT_EQ(a.post_send(write(id, remote->rkey)), 0);
  std::vector<uint64_t> sends;
  std::vector<uint64_t> receives;
  for (const ibv_wc& wc : completions(a, b, 10)) {
    EXPECT_EQ(wc.qp_num, a.qp->qp_num);
    if (wc.wr_id >= 20) {
      EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
      receives.push_back(wc.wr_id);
      continue;
    }
    const std::array<ibv_wc_status, 2> first{IBV_WC_SUCCESS, IBV_WC_REM_ACCESS_ERR};
    EXPECT_EQ(wc.status, wc.wr_id < 2 ? first.at(wc.wr_id) : IBV_WC_WR_FLUSH_ERR) << wc.wr_id;
    sends.push_back(wc.wr_id);
  }
  EXPECT_EQ(sends, (std::vector<uint64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(receives, (std::vector<uint64_t>{20, 21, 22, 23}));
  EXPECT_EQ(state_of(a), IBV_QPS_ERR);
  ASSERT_EQ(a.post_send(write(9, remote->rkey)), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_WR_FLUSH_ERR);
}

/// ibv_qp::state is the last state that the program set or queried (rdma-core, ibv_query_qp). UCX queries the
/// path of a failed QP and then posts work, which is flushed.
TEST_F(LocalError, AQueryForOtherAttributesLeavesTheStateInTheStructure) {
  connect(a, b);
  ASSERT_EQ(a.post_send(write(0, 0xdead00)), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_REM_ACCESS_ERR);
  ibv_qp_attr asked{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(a.qp, &asked, IBV_QP_AV | IBV_QP_DEST_QPN, &init), 0);
  EXPECT_EQ(asked.dest_qp_num, b.qp->qp_num);
  EXPECT_EQ(a.qp->state, IBV_QPS_RTS);
  ASSERT_EQ(ibv_query_qp(a.qp, &asked, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(a.qp->state, IBV_QPS_ERR);
}

/// max_dest_rd_atomic 0: no outstanding READ or atomic is allowed (IBA 9.7.4.1.2.1).
TEST_F(LocalError, AResponderWithoutResourcesRefusesReadsAndAtomics) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    SCOPED_TRACE(opcode);
    EXPECT_EQ(a.to_init(), 0);
    EXPECT_EQ(b.to_init(), 0);
    ASSERT_EQ(a.to_rtr(b.gid(), b.qp->qp_num), 0);
    ibv_qp_attr attr = End::rtr_attributes(a.gid(), a.qp->qp_num);
    attr.max_dest_rd_atomic = 0;
    ASSERT_EQ(ibv_modify_qp(b.qp, &attr, End::kRtrMask), 0);
    ASSERT_EQ(a.to_rts(), 0);
    ASSERT_EQ(b.to_rts(), 0);
    ibv_qp_attr asked{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(b.qp, &asked, IBV_QP_MAX_DEST_RD_ATOMIC, &init), 0);
    EXPECT_EQ(asked.max_dest_rd_atomic, 0);
    ibv_sge eight_bytes = sge_of(local, 0, 8);
    ibv_send_wr wr{};
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &eight_bytes;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma = {to.address(), remote->rkey};
    ASSERT_EQ(a.post_send(wr), 0);
    EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS) << "which needs none";
    wr.opcode = opcode;
    if (opcode == IBV_WR_RDMA_READ)
      wr.wr.rdma = {to.address(), remote->rkey};
    else
      wr.wr.atomic = {to.address(), 1, 0, remote->rkey};
    const std::vector<uint8_t> before(from.data(), from.data() + from.size());
    ASSERT_EQ(a.post_send(wr), 0);
    EXPECT_EQ(completion(a, b).status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(std::memcmp(from.data(), before.data(), before.size()), 0);
    for (End* end : {&a, &b}) {
      EXPECT_EQ(ibv_destroy_qp(end->qp), 0);
      end->make_qp({});
    }
  }
}

TEST_F(LocalError, AReceiveThatIsTooSmall) {
  connect(a, b);
  std::memset(to.data(), kUntouched, to.size());
  ASSERT_EQ(b.post_receive(7, {sge_of(remote, 0, 100)}), 0);
  ASSERT_EQ(a.post_send(send(5, 101)), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_REM_INV_REQ_ERR)
      << "as adapters; rxe says REM_OP_ERR (docs/conformance.md)";
  const ibv_wc received = completion(b, a);
  EXPECT_EQ(received.wr_id, 7U);
  EXPECT_EQ(received.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(std::count(to.data() + 100, to.data() + to.size(), kUntouched),
            static_cast<ptrdiff_t>(to.size() - 100));
}

TEST_F(LocalError, ABadLkeyInAReceive) {
  connect(a, b);
  ASSERT_EQ(b.post_receive(7, {{to.address(), 4096, 0xdead00}}), 0);
  ASSERT_EQ(a.post_send(send(5, 64)), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_REM_OP_ERR);
  const ibv_wc received = completion(b, a);
  EXPECT_EQ(received.wr_id, 7U);
  EXPECT_EQ(received.status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(LocalError, NoReceiveEverEndsInRnrRetryExceeded) {
  connect_with(7, 2, 14);
  ASSERT_EQ(a.post_send(send(5, 64)), 0);
  const ibv_wc wc = completion(a, b);
  EXPECT_EQ(wc.wr_id, 5U);
  EXPECT_EQ(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(LocalError, APeerThatIsGoneEndsInRetryExceeded) {
  connect_with(2, 7, 8);
  EXPECT_EQ(ibv_destroy_qp(b.qp), 0);
  b.qp = nullptr;
  ASSERT_EQ(a.post_send(write(5, remote->rkey)), 0);
  ASSERT_EQ(a.post_send(write(6, remote->rkey)), 0);
  static_cast<void>(take_failures());
  const std::vector<ibv_wc> all = completions(a, b, 2);
  EXPECT_EQ(all[0].wr_id, 5U);
  EXPECT_EQ(all[0].status, IBV_WC_RETRY_EXC_ERR);
  const auto failures = take_failures();
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].status, transport::CompletionStatus::retry_exceeded);
  EXPECT_EQ(failures[0].unanswered_packets, 2U);
  EXPECT_EQ(failures[0].retry_count, 2U);
  EXPECT_EQ(failures[0].rnr_retry, 7U);
  EXPECT_EQ(failures[0].ack_timeout_ns, 4096U << 8);
  EXPECT_EQ(all[1].wr_id, 6U);
  EXPECT_EQ(all[1].status, IBV_WC_WR_FLUSH_ERR);
}

}  // namespace

}  // namespace faultline::verbs::test::error_test
