// SPDX-License-Identifier: BSD-3-Clause
// Completion counters (ibv_create_comp_cntr(3)): what they count, and which calls are refused.
#include <utility>

#include "stack/verbs/completion/later_calls.hpp"
#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::counter_test {

namespace {

// ibv_qp_attach_comp_cntr_op
constexpr uint32_t kSend = 1, kReceive = 2, kRead = 4, kRemoteRead = 8, kWrite = 16, kRemoteWrite = 32;

ibv_comp_cntr* create(ibv_context* context, CounterType type = CounterType::work_requests) {
  CounterAttributes wanted{.comp_mask = 0, .type = static_cast<uint32_t>(type), .flags = 0};
  return ibv_create_comp_cntr(context, reinterpret_cast<ibv_comp_cntr_init_attr*>(&wanted));
}
int attach(ibv_qp* qp, ibv_comp_cntr* counter, uint32_t operations, uint32_t comp_mask = 0) {
  AttachAttributes wanted{.comp_mask = comp_mask, .operations = operations};
  return ibv_qp_attach_comp_cntr(qp, counter, reinterpret_cast<ibv_qp_attach_comp_cntr_attr*>(&wanted));
}
uint64_t completed(ibv_comp_cntr* counter) {
  uint64_t value = ~uint64_t{0};
  EXPECT_EQ(ibv_read_comp_cntr(counter, &value), 0);
  return value;
}
uint64_t failed(ibv_comp_cntr* counter) {
  uint64_t value = ~uint64_t{0};
  EXPECT_EQ(ibv_read_err_comp_cntr(counter, &value), 0);
  return value;
}

/// A counter for the life of a test.
class Counted {
 public:
  explicit Counted(const End& end, CounterType type = CounterType::work_requests)
      : counter(create(end.context, type)) {
    EXPECT_NE(counter, nullptr);
  }
  ~Counted() { EXPECT_EQ(ibv_destroy_comp_cntr(counter), 0); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ibv_comp_cntr* const counter;
};

/// The ends are declared before the counters and reset first: a counter is destroyed after its QP.
class CompletionCounters : public ::testing::TestWithParam<ibv_qp_type> {
 protected:
  void TearDown() override { drop_qps(); }
  void drop_qps() {
    for (End* const end : {&a, &b}) {
      if (end->qp == nullptr) continue;
      EXPECT_EQ(ibv_destroy_qp(end->qp), 0);
      end->qp = nullptr;
    }
  }
  void start() {
    connect(a, b);
    local = a.add_region(from);
    remote = b.add_region(to);
  }
  [[nodiscard]] ibv_send_wr request(ibv_wr_opcode opcode, size_t bytes, bool signaled = true) {
    sge = sge_of(local, 0, bytes);
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.send_flags = signaled ? unsigned{IBV_SEND_SIGNALED} : 0U;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma = {to.address(), remote->rkey};
    return wr;
  }
  void run(ibv_send_wr wr) const {
    ASSERT_EQ(a.post_send(wr), 0);
    EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  }

  End a{"mem0", {.type = GetParam()}};
  End b{"mem1", {.type = GetParam()}};
  const Counted first{a}, second{a}, peers{b};
  const Pages from{8192}, to{8192};
  ibv_mr *local = nullptr, *remote = nullptr;
  ibv_sge sge{};
};

INSTANTIATE_TEST_SUITE_P(Connected, CompletionCounters, ::testing::Values(IBV_QPT_RC, IBV_QPT_UC),
                         [](const auto& type) { return type.param == IBV_QPT_RC ? "Rc" : "Uc"; });

TEST_P(CompletionCounters, CountSendsWithoutACompletionToo) {
  ASSERT_EQ(attach(a.qp, first.counter, kSend), 0);
  ASSERT_EQ(attach(b.qp, peers.counter, kReceive), 0);
  start();
  constexpr int kSends = 5;
  for (int i = 0; i < kSends; ++i) ASSERT_EQ(b.post_receive(1, {sge_of(remote, 0, 64)}), 0);
  for (int i = 0; i + 1 < kSends; ++i) ASSERT_EQ(a.post_send(request(IBV_WR_SEND, 64, false)), 0);
  run(request(IBV_WR_SEND, 64));
  static_cast<void>(completions(b, a, kSends));
  EXPECT_EQ(completed(first.counter), 5U);
  EXPECT_EQ(completed(peers.counter), 5U);
  EXPECT_EQ(failed(first.counter), 0U);
  EXPECT_EQ(failed(peers.counter), 0U);
}

TEST_P(CompletionCounters, CountWritesAtBothEnds) {
  ASSERT_EQ(attach(a.qp, first.counter, kWrite), 0);
  ASSERT_EQ(attach(a.qp, second.counter, kSend | kRead | kReceive), 0);
  ASSERT_EQ(attach(b.qp, peers.counter, kRemoteWrite), 0);
  start();
  run(request(IBV_WR_RDMA_WRITE, 5000));  // of several packets
  run(request(IBV_WR_RDMA_WRITE, 0));
  ASSERT_EQ(b.post_receive(1, {}), 0);
  run(request(IBV_WR_RDMA_WRITE_WITH_IMM, 64));
  EXPECT_EQ(completion(b, a).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(completed(first.counter), 3U);
  EXPECT_EQ(completed(second.counter), 0U);
  EXPECT_EQ(completed(peers.counter), 3U);
}

TEST_P(CompletionCounters, CountBytes) {
  const Counted bytes(a, CounterType::bytes), peers_bytes(b, CounterType::bytes);
  ASSERT_EQ(attach(a.qp, bytes.counter, kWrite), 0);
  ASSERT_EQ(attach(b.qp, peers_bytes.counter, kRemoteWrite | kReceive), 0);
  start();
  run(request(IBV_WR_RDMA_WRITE, 5000));
  ASSERT_EQ(b.post_receive(1, {sge_of(remote, 0, 4096)}), 0);
  run(request(IBV_WR_SEND, 100));
  static_cast<void>(completion(b, a));
  EXPECT_EQ(completed(bytes.counter), 5000U);
  EXPECT_EQ(completed(peers_bytes.counter), 5100U);
  drop_qps();
}

class ReliableCounters : public CompletionCounters {};
INSTANTIATE_TEST_SUITE_P(Connected, ReliableCounters, ::testing::Values(IBV_QPT_RC));

TEST_P(ReliableCounters, CountReadsAndNoAtomics) {
  ASSERT_EQ(attach(a.qp, first.counter, kRead), 0);
  ASSERT_EQ(attach(a.qp, second.counter, kSend | kWrite), 0);
  start();
  run(request(IBV_WR_RDMA_READ, 5000));
  ibv_send_wr atomic = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
  atomic.wr.atomic = {to.address(), 1, 0, remote->rkey};
  run(atomic);
  EXPECT_EQ(completed(first.counter), 1U);
  EXPECT_EQ(completed(second.counter), 0U);
}

TEST_P(ReliableCounters, CountFailuresApart) {
  ASSERT_EQ(attach(a.qp, first.counter, kWrite), 0);
  ASSERT_EQ(attach(a.qp, second.counter, kSend), 0);
  ASSERT_EQ(attach(b.qp, peers.counter, kRemoteWrite | kReceive), 0);
  start();
  ASSERT_EQ(b.post_receive(1, {sge_of(remote, 0, 64)}), 0);
  ibv_send_wr refused = request(IBV_WR_RDMA_WRITE, 64);
  refused.wr.rdma.rkey = remote->rkey + 1;
  ASSERT_EQ(a.post_send(refused), 0);
  ASSERT_EQ(a.post_send(request(IBV_WR_SEND, 64, false)), 0);  // flushed
  const std::vector<ibv_wc> failures = completions(a, b, 2);
  EXPECT_EQ(failures[0].status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(failures[1].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(completion(b, a).status, IBV_WC_WR_FLUSH_ERR);
  for (ibv_comp_cntr* const counter : {first.counter, second.counter, peers.counter}) {
    EXPECT_EQ(failed(counter), 1U);
    EXPECT_EQ(completed(counter), 0U);
  }
}

TEST_P(ReliableCounters, AreAttachedBeforeTheQpReceives) {
  EXPECT_EQ(attach(a.qp, first.counter, kSend), 0);
  ASSERT_EQ(a.to_init(), 0);
  EXPECT_EQ(attach(a.qp, first.counter, kReceive), 0);
  EXPECT_EQ(attach(a.qp, second.counter, kReceive | kWrite), EBUSY);
  EXPECT_EQ(attach(a.qp, second.counter, kWrite), 0);
  ASSERT_EQ(a.to_rtr(b.gid(), b.qp->qp_num), 0);
  EXPECT_EQ(attach(a.qp, second.counter, kRead), EINVAL);
  EXPECT_EQ(attach(b.qp, first.counter, kSend), EINVAL);  // of another context
  EXPECT_EQ(attach(b.qp, peers.counter, kRemoteRead), ENOTSUP);
  EXPECT_EQ(attach(b.qp, peers.counter, 64), ENOTSUP);
  EXPECT_EQ(attach(b.qp, peers.counter, 0), EINVAL);
  EXPECT_EQ(attach(b.qp, peers.counter, kSend, 1), EINVAL);
  EXPECT_EQ(attach(b.qp, nullptr, kSend), EINVAL);
  EXPECT_EQ(attach(nullptr, peers.counter, kSend), EINVAL);
  EXPECT_EQ(ibv_qp_attach_comp_cntr(b.qp, peers.counter, nullptr), EINVAL);
}

TEST_P(ReliableCounters, AreInUseUntilTheirQpIsGone) {
  ASSERT_EQ(attach(a.qp, first.counter, kSend), 0);
  EXPECT_EQ(ibv_destroy_comp_cntr(first.counter), EBUSY);
  ibv_qp* const other = std::exchange(a.qp, nullptr);
  a.make_qp({});
  ASSERT_EQ(attach(a.qp, first.counter, kSend | kReceive), 0);
  EXPECT_EQ(ibv_destroy_qp(other), 0);
  EXPECT_EQ(ibv_destroy_comp_cntr(first.counter), EBUSY);
}

TEST_P(ReliableCounters, AccumulateOverQps) {
  ASSERT_EQ(attach(a.qp, first.counter, kWrite), 0);
  start();
  run(request(IBV_WR_RDMA_WRITE, 64));
  ibv_qp *const a_before = std::exchange(a.qp, nullptr), *const b_before = std::exchange(b.qp, nullptr);
  a.make_qp({});
  b.make_qp({});
  ASSERT_EQ(attach(a.qp, first.counter, kWrite), 0);
  connect(a, b);
  run(request(IBV_WR_RDMA_WRITE, 64));
  EXPECT_EQ(completed(first.counter), 2U);
  EXPECT_EQ(ibv_destroy_qp(a_before), 0);
  EXPECT_EQ(ibv_destroy_qp(b_before), 0);
}

TEST_P(ReliableCounters, HaveTheProgramsValues) {
  ibv_comp_cntr* const counter = first.counter;
  EXPECT_EQ(completed(counter), 0U);
  EXPECT_EQ(ibv_set_comp_cntr(counter, UINT64_MAX), 0);
  EXPECT_EQ(ibv_inc_comp_cntr(counter, 3), 0);
  EXPECT_EQ(completed(counter), 2U);  // it wraps to zero
  EXPECT_EQ(ibv_set_err_comp_cntr(counter, 5), 0);
  EXPECT_EQ(ibv_inc_err_comp_cntr(counter, 2), 0);
  EXPECT_EQ(failed(counter), 7U);
  EXPECT_EQ(completed(counter), 2U);
}

TEST_P(ReliableCounters, AreDescribed) {
  CounterCapabilities caps{};
  auto* const pointer = reinterpret_cast<ibv_comp_cntr_caps*>(&caps);
  EXPECT_EQ(_ibv_query_comp_cntr_caps(a.context, pointer, sizeof caps), 0);
  EXPECT_EQ(caps.max_value, UINT64_MAX);
  EXPECT_GT(caps.max_counters, 1000U);
  EXPECT_EQ(caps.supported_operations, kSend | kReceive | kRead | kWrite | kRemoteWrite);
  EXPECT_EQ(_ibv_query_comp_cntr_caps(nullptr, pointer, sizeof caps), EINVAL);
  EXPECT_EQ(_ibv_query_comp_cntr_caps(a.context, nullptr, sizeof caps), EINVAL);
}

TEST_P(ReliableCounters, OfInvalidArgumentsAreRefused) {
  const auto refusal = [&](CounterAttributes wanted) {
    errno = 0;
    EXPECT_EQ(ibv_create_comp_cntr(a.context, reinterpret_cast<ibv_comp_cntr_init_attr*>(&wanted)), nullptr);
    return errno;
  };
  EXPECT_EQ(refusal({.comp_mask = 1, .type = 0, .flags = 0}), EINVAL);
  EXPECT_EQ(refusal({.comp_mask = 0, .type = 0, .flags = 1}), EINVAL);
  EXPECT_EQ(refusal({.comp_mask = 0, .type = 2, .flags = 0}), ENOTSUP);
  EXPECT_EQ(create(nullptr), nullptr);
  EXPECT_EQ(ibv_create_comp_cntr(a.context, nullptr), nullptr);

  ibv_comp_cntr* const gone = create(a.context);
  EXPECT_EQ(ibv_destroy_comp_cntr(gone), 0);
  uint64_t value = 0;
  EXPECT_EQ(ibv_destroy_comp_cntr(gone), EINVAL);
  EXPECT_EQ(ibv_read_comp_cntr(gone, &value), EINVAL);
  EXPECT_EQ(ibv_inc_comp_cntr(gone, 1), EINVAL);
  EXPECT_EQ(attach(a.qp, gone, kSend), EINVAL);
  EXPECT_EQ(ibv_read_err_comp_cntr(first.counter, nullptr), EINVAL);
}

TEST(DatagramCounter, CountsDatagramsWithoutACompletion) {
  End a("mem0", {.type = IBV_QPT_UD}), b("mem1", {.type = IBV_QPT_UD});
  {
    ibv_comp_cntr* const sent = create(a.context);
    ASSERT_EQ(attach(a.qp, sent, kSend), 0);
    connect(a, b);
    const Pages from(4096);
    ibv_mr* const local = a.add_region(from);
    ibv_ah_attr address{};
    address.is_global = 1;
    address.port_num = 1;
    address.grh.dgid = b.gid();
    address.grh.hop_limit = 1;
    ibv_ah* const ah = ibv_create_ah(a.pd, &address);
    ASSERT_NE(ah, nullptr);
    ibv_sge sge = sge_of(local, 0, 64);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.ud = {ah, b.qp->qp_num, kQkey};
    ASSERT_EQ(a.post_send(wr), 0);
    wr.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(a.post_send(wr), 0);
    EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
    EXPECT_EQ(completed(sent), 2U);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
    EXPECT_EQ(ibv_destroy_qp(a.qp), 0);
    a.qp = nullptr;
    EXPECT_EQ(ibv_destroy_comp_cntr(sent), 0);
  }
}

}  // namespace

}  // namespace faultline::verbs::test::counter_test
