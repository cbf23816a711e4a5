// SPDX-License-Identifier: BSD-3-Clause
// The ways in which a QP fails: each has its cause as vendor_err and in the last error, at both ends.
#include <cerrno>

#include "stack/status/failure.hpp"
#include "tests/hang_limit.hpp"
#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::ways_to_fail_test {

namespace {

using enum status::FailureCause;
using status::FailureCause;

constexpr size_t kBytes = 16384;

/// Two connected ends, of which `a` sends the request that fails.
struct Scene {
  End a{"mem0"};
  End b{"mem1"};
  const Pages from{kBytes};
  const Pages to{kBytes};
  ibv_mr* local = nullptr;
  ibv_mr* remote = nullptr;

  struct Attributes {
    uint8_t timeout = 14;
    uint8_t retry_count = 7;
    uint8_t rnr_retry = 7;
    ibv_mtu mtu_of_b = IBV_MTU_1024;
    int rights_of_b = kAllRights;
    uint8_t reads_of_b = 4;
    uint32_t rq_psn_of_b = 0xfffffe;
    bool connects_b = true;
  };
  void connect_ends(const Attributes& wanted) {
    local = a.add_region(from);
    remote = b.add_region(to);
    ASSERT_EQ(a.to_init(), 0);
    ASSERT_EQ(a.to_rtr(b.gid(), b.qp->qp_num), 0);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = 0xfffffe;
    attr.timeout = wanted.timeout;
    attr.retry_cnt = wanted.retry_count;
    attr.rnr_retry = wanted.rnr_retry;
    attr.max_rd_atomic = 4;
    ASSERT_EQ(ibv_modify_qp(a.qp, &attr,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
              0);
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    init.qp_access_flags = static_cast<unsigned>(wanted.rights_of_b);
    ASSERT_EQ(
        ibv_modify_qp(b.qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
    if (!wanted.connects_b) return;
    ibv_qp_attr ready = End::rtr_attributes(a.gid(), a.qp->qp_num);
    ready.path_mtu = wanted.mtu_of_b;
    ready.max_dest_rd_atomic = wanted.reads_of_b;
    ready.rq_psn = wanted.rq_psn_of_b;
    ASSERT_EQ(ibv_modify_qp(b.qp, &ready, End::kRtrMask), 0);
    ASSERT_EQ(b.to_rts(), 0);
  }

  [[nodiscard]] ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge& sge) const {
    ibv_send_wr wr{};
    wr.wr_id = 3;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      wr.wr.atomic = {reinterpret_cast<uint64_t>(remote->addr), 1, 0, remote->rkey};
    else
      wr.wr.rdma = {reinterpret_cast<uint64_t>(remote->addr), remote->rkey};
    return wr;
  }
  /// Posts a request of 64 bytes, or 8 of an atomic.
  void post(ibv_wr_opcode opcode, uint32_t bytes = 64) const {
    ibv_sge sge = sge_of(local, 0, bytes);
    ASSERT_EQ(a.post_send(request(opcode, sge)), 0);
  }
  void post_to(ibv_wr_opcode opcode, uint64_t va, uint32_t rkey, uint32_t bytes = 64) const {
    ibv_sge sge = sge_of(local, 0, bytes);
    ibv_send_wr wr = request(opcode, sge);
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      wr.wr.atomic = {va, 1, 0, rkey};
    else
      wr.wr.rdma = {va, rkey};
    ASSERT_EQ(a.post_send(wr), 0);
  }
  void post_from(ibv_wr_opcode opcode, ibv_sge sge) const { ASSERT_EQ(a.post_send(request(opcode, sge)), 0); }
  /// A request that succeeds.
  void succeed() const {
    post(IBV_WR_RDMA_WRITE);
    EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  }
  [[nodiscard]] uint64_t remote_va() const { return reinterpret_cast<uint64_t>(remote->addr); }
};

struct Way {
  const char* name;
  ibv_wc_status status;    ///< of the request; IBV_WC_SUCCESS: it does not fail
  FailureCause at_sender;  ///< none: the sender's QP does not fail
  FailureCause at_receiver;
  Scene::Attributes attributes;
  void (*act)(Scene& scene);
  // Facts in the text of the last error.
  std::string_view sender_says = {};
  std::string_view receiver_says = {};
};

const Way kWays[] = {
    {"NoPeer",
     IBV_WC_RETRY_EXC_ERR,
     never_answered,
     none,
     {.timeout = 1, .retry_count = 2, .connects_b = false},
     [](Scene& s) { s.post(IBV_WR_RDMA_WRITE); },
     "2 of 2 retries are used, the ACK timeout is 0.00819 ms; 1 packets"},
    {"WrongPsnBefore",
     IBV_WC_RETRY_EXC_ERR,
     acknowledges_nothing,
     none,
     {.timeout = 8, .retry_count = 1, .rq_psn_of_b = 0xfffff0},
     [](Scene& s) { s.post(IBV_WR_RDMA_WRITE); }},
    {"WrongPsnAfter",
     IBV_WC_RETRY_EXC_ERR,
     never_answered,
     none,
     {.timeout = 8, .retry_count = 1, .rq_psn_of_b = 0x000020},
     [](Scene& s) { s.post(IBV_WR_RDMA_WRITE); }},
    {"PeerStops",
     IBV_WC_RETRY_EXC_ERR,
     stopped_answering,
     none,
     {.timeout = 12, .retry_count = 1},
     [](Scene& s) {
       s.succeed();
       ibv_qp_attr reset{};
       reset.qp_state = IBV_QPS_RESET;
       ASSERT_EQ(ibv_modify_qp(s.b.qp, &reset, IBV_QP_STATE), 0);
       s.post(IBV_WR_RDMA_WRITE);
     },
     "1 of 1 retries are used, the ACK timeout is 16.8 ms; 1 packets are not acknowledged, the last "
     "acknowledged PSN is 16777214"},
    {"LinkDown",
     IBV_WC_RETRY_EXC_ERR,
     link_down,
     none,
     {.timeout = 1, .retry_count = 1, .connects_b = false},
     [](Scene& s) {
       faults().link_down = true;
       s.post(IBV_WR_RDMA_WRITE);
     }},
    {"NoReceivePosted",
     IBV_WC_RNR_RETRY_EXC_ERR,
     receiver_not_ready,
     none,
     {.rnr_retry = 1},
     [](Scene& s) { s.post(IBV_WR_SEND); },
     "; 1 of 1 RNR retries are used"},
    {"CreditsUsedUp",
     IBV_WC_RNR_RETRY_EXC_ERR,
     receiver_not_ready,
     none,
     {.rnr_retry = 2},
     [](Scene& s) {
       ASSERT_EQ(s.b.post_receive(8, {sge_of(s.remote, 0, 64)}), 0);
       s.post(IBV_WR_SEND);
       EXPECT_EQ(completion(s.a, s.b).status, IBV_WC_SUCCESS);
       s.post(IBV_WR_SEND);
     },
     "; 2 of 2 RNR retries are used"},
    {"WrongQpn",
     IBV_WC_RETRY_EXC_ERR,
     never_answered,
     none,
     {.timeout = 8, .retry_count = 1},
     [](Scene& s) {
       ASSERT_EQ(ibv_destroy_qp(s.b.qp), 0);
       s.b.qp = nullptr;
       s.post(IBV_WR_RDMA_WRITE);
     },
     "1 of 1 retries are used"},
    {"WrongRkey",
     IBV_WC_REM_ACCESS_ERR,
     peer_refused_access,
     refused_key,
     {},
     [](Scene& s) { s.post_to(IBV_WR_RDMA_WRITE, s.remote_va(), s.remote->rkey ^ 0x8000); },
     "the peer's NAK has syndrome 0x62",
     "NAK with syndrome 0x62; rkey 0x"},
    {"StaleRkey",
     IBV_WC_REM_ACCESS_ERR,
     peer_refused_access,
     refused_key,
     {},
     [](Scene& s) {
       const uint32_t rkey = s.remote->rkey;
       ASSERT_EQ(ibv_dereg_mr(s.remote), 0);
       s.b.regions.clear();
       ibv_sge sge = sge_of(s.local, 0, 64);
       ibv_send_wr wr{};
       wr.opcode = IBV_WR_RDMA_READ;
       wr.sg_list = &sge;
       wr.num_sge = 1;
       wr.wr.rdma = {s.to.address(), rkey};
       ASSERT_EQ(s.a.post_send(wr), 0);
     }},
    {"RkeyOfAnotherDomain",
     IBV_WC_REM_ACCESS_ERR,
     peer_refused_access,
     refused_domain,
     {},
     [](Scene& s) {
       ibv_pd* const other = ibv_alloc_pd(s.b.context);
       ibv_mr* const mr = ibv_reg_mr(other, s.to.data(), s.to.size(), kAllRights);
       s.post_to(IBV_WR_RDMA_WRITE, s.remote_va(), mr->rkey);
       EXPECT_EQ(completion(s.a, s.b).status, IBV_WC_REM_ACCESS_ERR);
       EXPECT_EQ(ibv_dereg_mr(mr), 0);
       EXPECT_EQ(ibv_dealloc_pd(other), 0);
     }},
    {"BeyondTheRegion",
     IBV_WC_REM_ACCESS_ERR,
     peer_refused_access,
     refused_range,
     {},
     [](Scene& s) { s.post_to(IBV_WR_RDMA_READ, s.remote_va() + kBytes - 32, s.remote->rkey); }},
    {"BeforeTheRegion",
     IBV_WC_REM_ACCESS_ERR,
     peer_refused_access,
     refused_range,
     {},
     [](Scene& s) { s.post_to(IBV_WR_RDMA_WRITE, s.remote_va() - 1, s.remote->rkey); }},
    {"RegionWithoutTheRight",
     IBV_WC_REM_ACCESS_ERR,
     peer_refused_access,
     refused_right,
     {},
     [](Scene& s) {
       ibv_mr* const readable = s.b.add_region(s.to, IBV_ACCESS_REMOTE_READ);
       s.post_to(IBV_WR_RDMA_WRITE, s.remote_va(), readable->rkey);
     }},
    {"WindowNotBound",
     IBV_WC_REM_ACCESS_ERR,
     peer_refused_access,
     refused_window,
     {},
     [](Scene& s) {
       ibv_mw* const window = ibv_alloc_mw(s.b.pd, IBV_MW_TYPE_1);
       s.post_to(IBV_WR_RDMA_WRITE, s.remote_va(), window->rkey);
       EXPECT_EQ(completion(s.a, s.b).status, IBV_WC_REM_ACCESS_ERR);
       EXPECT_EQ(ibv_dealloc_mw(window), 0);
     }},
    {"PageThatNeverComes",
     IBV_WC_REM_ACCESS_ERR,
     peer_refused_access,
     refused_page,
     {},
     [](Scene& s) {
       const Pages gone(kBytes);
       ibv_mr* const mr = s.b.add_region(gone, kAllRights | IBV_ACCESS_ON_DEMAND);
       ASSERT_EQ(munmap(gone.data() + 4096, 4096), 0);
       s.post_to(IBV_WR_RDMA_WRITE, gone.address() + 4096, mr->rkey);
       EXPECT_EQ(completion(s.a, s.b).status, IBV_WC_REM_ACCESS_ERR);
     },
     "the peer's NAK has syndrome 0x62",
     "NAK with syndrome 0x62; rkey 0x"},
    {"FunctionDisabled",
     IBV_WC_REM_INV_REQ_ERR,
     peer_refused_request,
     function_disabled,
     {.rights_of_b = IBV_ACCESS_LOCAL_WRITE},
     [](Scene& s) { s.post(IBV_WR_RDMA_READ); }},
    {"PathMtuMismatch",
     IBV_WC_REM_INV_REQ_ERR,
     peer_refused_request,
     malformed_request,
     {.mtu_of_b = IBV_MTU_512},
     [](Scene& s) { s.post(IBV_WR_RDMA_WRITE, 4000); }},
    {"ReceiveTooShort",
     IBV_WC_REM_INV_REQ_ERR,
     peer_refused_request,
     receive_too_short,
     {},
     [](Scene& s) {
       ASSERT_EQ(s.b.post_receive(8, {sge_of(s.remote, 0, 32)}), 0);
       s.post(IBV_WR_SEND);
       const ibv_wc received = completion(s.b, s.a);
       EXPECT_EQ(received.status, IBV_WC_LOC_LEN_ERR);
       EXPECT_EQ(received.vendor_err, static_cast<uint32_t>(receive_too_short));
     }},
    {"ReceiveWithoutMemory",
     IBV_WC_REM_OP_ERR,
     peer_failed,
     receive_memory,
     {},
     [](Scene& s) {
       ibv_sge sge = sge_of(s.remote, 0, 64);
       sge.lkey ^= 0x8000;
       ASSERT_EQ(s.b.post_receive(8, {sge}), 0);
       s.post(IBV_WR_SEND);
       const ibv_wc received = completion(s.b, s.a);
       EXPECT_EQ(received.status, IBV_WC_LOC_PROT_ERR);
       EXPECT_EQ(received.vendor_err, static_cast<uint32_t>(receive_memory));
     }},
    {"MisalignedAtomic",
     IBV_WC_REM_INV_REQ_ERR,
     peer_refused_request,
     misaligned_atomic,
     {},
     [](Scene& s) { s.post_to(IBV_WR_ATOMIC_FETCH_AND_ADD, s.remote_va() + 4, s.remote->rkey, 8); }},
    {"InvalidateOfNoWindow",
     IBV_WC_REM_ACCESS_ERR,
     peer_refused_access,
     bad_invalidate,
     {},
     [](Scene& s) {
       ASSERT_EQ(s.b.post_receive(8, {sge_of(s.remote, 0, 64)}), 0);
       ibv_sge sge = sge_of(s.local, 0, 64);
       ibv_send_wr wr = s.request(IBV_WR_SEND_WITH_INV, sge);
       wr.invalidate_rkey = s.remote->rkey;
       ASSERT_EQ(s.a.post_send(wr), 0);
     }},
    {"TooManyReads",
     IBV_WC_REM_INV_REQ_ERR,
     peer_refused_request,
     too_many_reads,
     {.reads_of_b = 1},
     [](Scene& s) {
       std::array<ibv_send_wr, 4> reads;
       ibv_sge sge = sge_of(s.local, 0, 4096);
       for (size_t i = 0; i < reads.size(); ++i) {
         reads[i] = s.request(IBV_WR_RDMA_READ, sge);
         reads[i].next = i + 1 < reads.size() ? &reads[i + 1] : nullptr;
       }
       ibv_send_wr* bad = nullptr;
       ASSERT_EQ(ibv_post_send(s.a.qp, reads.data(), &bad), 0);
     }},
    {"LocalKey",
     IBV_WC_LOC_PROT_ERR,
     local_key,
     none,
     {},
     [](Scene& s) {
       ibv_sge sge = sge_of(s.local, 0, 64);
       sge.lkey ^= 0x8000;
       s.post_from(IBV_WR_RDMA_WRITE, sge);
     },
     ", 64 bytes at address 0x"},
    {"LocalKeyOfAnotherDomain",
     IBV_WC_LOC_PROT_ERR,
     local_domain,
     none,
     {},
     [](Scene& s) {
       ibv_pd* const other = ibv_alloc_pd(s.a.context);
       ibv_mr* const mr = ibv_reg_mr(other, s.from.data(), s.from.size(), kAllRights);
       s.post_from(IBV_WR_RDMA_WRITE, sge_of(mr, 0, 64));
       EXPECT_EQ(completion(s.a, s.b).status, IBV_WC_LOC_PROT_ERR);
       EXPECT_EQ(ibv_dereg_mr(mr), 0);
       EXPECT_EQ(ibv_dealloc_pd(other), 0);
     }},
    {"LocalRange",
     IBV_WC_LOC_PROT_ERR,
     local_range,
     none,
     {},
     [](Scene& s) { s.post_from(IBV_WR_RDMA_WRITE, sge_of(s.local, kBytes - 32, 64)); }},
    {"LocalRight",
     IBV_WC_LOC_PROT_ERR,
     local_right,
     none,
     {},
     [](Scene& s) { s.post_from(IBV_WR_RDMA_READ, sge_of(s.a.add_region(s.from, 0), 0, 64)); }},
    {"LocalPage",
     IBV_WC_LOC_PROT_ERR,
     local_page,
     none,
     {},
     [](Scene& s) {
       const Pages gone(kBytes);
       ibv_mr* const mr = s.a.add_region(gone, kAllRights | IBV_ACCESS_ON_DEMAND);
       ASSERT_EQ(munmap(gone.data() + 4096, 4096), 0);
       s.post_from(IBV_WR_RDMA_WRITE, sge_of(mr, 4096, 64));
       EXPECT_EQ(completion(s.a, s.b).status, IBV_WC_LOC_PROT_ERR);
     },
     "; lkey 0x"},
    {"WindowBind",
     IBV_WC_MW_BIND_ERR,
     window_bind,
     none,
     {},
     [](Scene& s) {
       ibv_mw* const window = ibv_alloc_mw(s.a.pd, IBV_MW_TYPE_2);
       ibv_send_wr wr{};
       wr.wr_id = 3;
       wr.opcode = IBV_WR_BIND_MW;
       wr.send_flags = IBV_SEND_SIGNALED;
       wr.bind_mw.mw = window;
       wr.bind_mw.rkey = ibv_inc_rkey(window->rkey);
       // The region does not permit binds.
       wr.bind_mw.bind_info = {s.local, s.from.address(), 64, IBV_ACCESS_REMOTE_WRITE};
       ASSERT_EQ(s.a.post_send(wr), 0);
       EXPECT_EQ(completion(s.a, s.b).status, IBV_WC_MW_BIND_ERR);
       EXPECT_EQ(ibv_dealloc_mw(window), 0);
     }},
};

class WaysToFail : public ::testing::TestWithParam<Way> {
 protected:
  void TearDown() override { faults().link_down = false; }
};

void expect_cause(ibv_qp* qp, FailureCause cause, std::string_view fact, const std::string& where) {
  if (qp == nullptr) return;  // the way destroys it
  faultline_qp_error error{};
  if (cause == none) {
    EXPECT_EQ(faultline_query_last_error(qp, &error), ENOENT) << where << ": " << error.text;
    return;
  }
  const status::FailureCauseRow& row = status::row_of(cause);
  ASSERT_EQ(faultline_query_last_error(qp, &error), 0) << where;
  EXPECT_EQ(error.name, row.name) << where << ": " << error.text;
  EXPECT_EQ(error.vendor_err, static_cast<uint32_t>(cause)) << where;
  EXPECT_EQ(error.qp_num, qp->qp_num) << where;
  EXPECT_GT(error.time_ns, 0U) << where;
  const std::string text = error.text;
  for (const std::string_view part : {row.name, row.text, row.check, fact})
    EXPECT_NE(text.find(part), std::string::npos) << where << ": " << text;
}

TEST_P(WaysToFail, HaveACause) {
  const Way& way = GetParam();
  Scene scene;
  ASSERT_NO_FATAL_FAILURE(scene.connect_ends(way.attributes));
  ASSERT_NO_FATAL_FAILURE(way.act(scene));
  // Some have polled the completion, since their objects end before.
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  const auto limit = std::chrono::steady_clock::now() + faultline::test::hang_limit();
  const auto state_of = [&](const End& end) {
    EXPECT_EQ(ibv_query_qp(end.qp, &attributes, IBV_QP_STATE, &init), 0);
    return attributes.qp_state;
  };
  std::vector<ibv_wc> seen;
  while (std::chrono::steady_clock::now() < limit) {
    ibv_wc wc{};
    while (ibv_poll_cq(scene.a.cq, 1, &wc) == 1) seen.push_back(wc);
    faultline_progress(scene.b.context);
    const bool is_done = way.at_sender == none || state_of(scene.a) == IBV_QPS_ERR;
    const bool is_done_there = way.at_receiver == none || state_of(scene.b) == IBV_QPS_ERR;
    if (is_done && is_done_there) break;
  }
  ibv_wc wc{};
  while (ibv_poll_cq(scene.a.cq, 1, &wc) == 1) seen.push_back(wc);
  for (const ibv_wc& one : seen) {
    if (one.status == IBV_WC_SUCCESS) continue;
    EXPECT_EQ(one.vendor_err, static_cast<uint32_t>(way.at_sender)) << ibv_wc_status_str(one.status);
    EXPECT_TRUE(one.status == way.status || one.status == IBV_WC_WR_FLUSH_ERR)
        << ibv_wc_status_str(one.status);
  }
  expect_cause(scene.a.qp, way.at_sender, way.sender_says, "sender");
  expect_cause(scene.b.qp, way.at_receiver, way.receiver_says, "receiver");
}

INSTANTIATE_TEST_SUITE_P(All, WaysToFail, ::testing::ValuesIn(kWays),
                         [](const auto& way) { return std::string(way.param.name); });

TEST(LastError, AQpThatTheProgramMovesToTheErrorStateHasNone) {
  End a("mem0");
  const End b("mem1");
  connect(a, b);
  ASSERT_EQ(a.post_receive(5, {}), 0);
  ibv_qp_attr error_state{};
  error_state.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a.qp, &error_state, IBV_QP_STATE), 0);
  const ibv_wc wc = completion(a, b);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wc.vendor_err, static_cast<uint32_t>(flushed));
  faultline_qp_error error{};
  EXPECT_EQ(faultline_query_last_error(a.qp, &error), ENOENT);
  EXPECT_EQ(faultline_query_last_error(nullptr, &error), EINVAL);
  EXPECT_EQ(faultline_query_last_error(a.qp, nullptr), EINVAL);
}

TEST(LastError, AFullCompletionQueueIsACause) {
  End a("mem0", {.depth = 64, .cqe = 1});
  const End b("mem1");
  const Pages pages(4096);
  ibv_mr* const mr = a.add_region(pages);
  connect(a, b);
  ibv_sge sge = sge_of(mr, 0, 8);
  for (int i = 0; i < 32; ++i) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 0;  // no bytes: any key
    ASSERT_EQ(a.post_send(wr), 0);
  }
  faultline_qp_error error{};
  const auto limit = std::chrono::steady_clock::now() + faultline::test::hang_limit();
  while (faultline_query_last_error(a.qp, &error) != 0 && std::chrono::steady_clock::now() < limit) {
    faultline_progress(a.context);
    faultline_progress(b.context);
  }
  EXPECT_STREQ(error.name, "cq_overrun");
  ibv_async_event event{};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(ibv_get_async_event(a.context, &event), 0);
    ibv_ack_async_event(&event);
  }
}

TEST(LastError, CausesHaveDistinctNumbersAndNames) {
  const auto rows = status::failure_causes();
  for (size_t i = 1; i < rows.size(); ++i) {
    EXPECT_LT(rows[i - 1].cause, rows[i].cause);
    EXPECT_EQ(&status::row_of(rows[i].cause), &rows[i]);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(rows[i].name, rows[j].name);
  }
  EXPECT_EQ(status::row_of(static_cast<FailureCause>(63)).cause, none);
}

}  // namespace

}  // namespace faultline::verbs::test::ways_to_fail_test
