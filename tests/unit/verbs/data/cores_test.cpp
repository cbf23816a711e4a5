// SPDX-License-Identifier: BSD-3-Clause
// A device with several cores: QPs are assigned round-robin, the QPs of an SRQ stay on its core, and all
// cores may fill one CQ.
#include <set>
#include <thread>
#include <utility>

#include <fcntl.h>

#include "stack/transport/core/core.hpp"
#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::cores_test {

namespace {

constexpr uint32_t kCores = 2;

/// Devices that start during its lifetime have several cores.
class SeveralCores : public ::testing::Test {
 protected:
  SeveralCores() { faults().cores = kCores; }
  ~SeveralCores() override { faults().cores = 1; }
};

ibv_qp* make_qp(const End& end, ibv_srq* srq = nullptr) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = end.cq;
  init.srq = srq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {16, 16, 1, 1, 0};
  return ibv_create_qp(end.pd, &init);
}

TEST_F(SeveralCores, QpsAreDealtOutInTurn) {
  const End end("mem0");
  std::vector<ibv_qp*> qps;
  std::array<int, kCores> owned{};
  for (int i = 0; i < 8; ++i) {
    qps.push_back(make_qp(end));
    ASSERT_NE(qps.back(), nullptr);
    ++owned[transport::owner_of(qps.back()->qp_num, kCores)];
  }
  EXPECT_EQ(owned, (std::array<int, kCores>{4, 4}));
  for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(SeveralCores, AnSrqsQpsAreOnItsCore) {
  const End end("mem0");
  ibv_srq_init_attr init{nullptr, {16, 1, 0}};
  for (int i = 0; i < 3; ++i) {
    ibv_srq* const srq = ibv_create_srq(end.pd, &init);
    ASSERT_NE(srq, nullptr);
    std::set<uint32_t> owners;
    std::vector<ibv_qp*> qps;
    for (int k = 0; k < 5; ++k) {
      qps.push_back(make_qp(end, srq));
      owners.insert(transport::owner_of(qps.back()->qp_num, kCores));
    }
    EXPECT_EQ(owners.size(), 1U);
    for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
  }
}

/// An XRC message takes a receive from the SRQ that it names, through any XRC target: both are on the core of
/// their XRC domain.
TEST_F(SeveralCores, EveryXrcTargetReachesEveryQueueOfItsDomain) {
  constexpr size_t kPairs = 4;
  const Pages from(4096);
  const Pages to(8192);
  End a("mem0");
  End b("mem1");
  ibv_mr* const local = a.add_region(from);
  ibv_mr* const remote = b.add_region(to);
  from.fill(3);
  std::set<uint32_t> owners;
  for (size_t domain = 0; domain < 2; ++domain) {
    ibv_xrcd_init_attr xrcd_init{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
    ibv_xrcd* const xrcd = ibv_open_xrcd(b.context, &xrcd_init);
    ASSERT_NE(xrcd, nullptr);
    std::array<ibv_srq*, kPairs> srqs{};
    std::array<uint32_t, kPairs> numbers{};
    for (size_t i = 0; i < kPairs; ++i) {
      ibv_srq_init_attr_ex init{};
      init.attr = {16, 1, 0};
      init.comp_mask =
          IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
      init.srq_type = IBV_SRQT_XRC;
      init.pd = b.pd;
      init.xrcd = xrcd;
      init.cq = b.cq;
      srqs[i] = ibv_create_srq_ex(b.context, &init);
      ASSERT_NE(srqs[i], nullptr);
      ASSERT_EQ(ibv_get_srq_num(srqs[i], &numbers[i]), 0);
      // Other objects also take part in the round-robin assignment.
      if (i == 1) {
        EXPECT_EQ(ibv_destroy_qp(b.qp), 0);
        b.qp = make_qp(b);
      }
    }
    for (size_t target = 0; target < kPairs; ++target) {
      EXPECT_EQ(ibv_destroy_qp(a.qp), 0);
      EXPECT_EQ(ibv_destroy_qp(b.qp), 0);
      ibv_qp_init_attr_ex init{};
      init.qp_type = IBV_QPT_XRC_SEND;
      init.comp_mask = IBV_QP_INIT_ATTR_PD;
      init.pd = a.pd;
      init.send_cq = a.cq;
      init.cap = {8, 0, 1, 0, 0};
      a.qp = ibv_create_qp_ex(a.context, &init);
      ASSERT_NE(a.qp, nullptr);
      init = {};
      init.qp_type = IBV_QPT_XRC_RECV;
      init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
      init.xrcd = xrcd;
      b.qp = ibv_create_qp_ex(b.context, &init);
      ASSERT_NE(b.qp, nullptr);
      owners.insert(transport::owner_of(b.qp->qp_num, kCores));
      connect(a, b);
      for (size_t i = 0; i < kPairs; ++i) {
        SCOPED_TRACE(testing::Message() << "domain " << domain << " target " << target << " queue " << i);
        ibv_sge place = sge_of(remote, i * 1000, 1000);
        ibv_recv_wr receive{i, nullptr, &place, 1};
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_srq_recv(srqs[i], &receive, &bad), 0);
        ibv_sge sge = sge_of(local, 0, 500);
        ibv_send_wr wr{};
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.qp_type.xrc.remote_srqn = numbers[i];
        ASSERT_EQ(a.post_send(wr), 0);
        ASSERT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
        EXPECT_EQ(completion(b, a).wr_id, i);
        EXPECT_EQ(std::memcmp(to.data() + i * 1000, from.data(), 500), 0);
      }
    }
    EXPECT_EQ(ibv_destroy_qp(b.qp), 0);
    b.qp = make_qp(b);
    EXPECT_EQ(ibv_destroy_qp(a.qp), 0);
    a.qp = make_qp(a);
    for (ibv_srq* srq : srqs) EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
  }
  EXPECT_EQ(owners.size(), kCores) << "domains are dealt out in turn";
}

/// Two cores push to one CQ, two threads drive them, one thread polls, and the queue is resized meanwhile.
/// Each completion arrives exactly once.
TEST_F(SeveralCores, OneCqForAllOfThem) {
  constexpr size_t kQps = 4;
  constexpr uint64_t kEach = 1500;
  const Pages from(4096);
  const Pages to(4096);
  EndOptions options;
  options.cqe = 512;
  options.with_channel = true;
  End a("mem0", options);
  End b("mem1", options);
  ibv_mr* const local = a.add_region(from);
  ibv_mr* const remote = b.add_region(to);
  std::array<ibv_qp*, kQps> qps{};
  std::array<ibv_qp*, kQps> peers{};
  for (size_t i = 0; i < kQps; ++i) {
    EXPECT_EQ(ibv_destroy_qp(a.qp), 0);
    EXPECT_EQ(ibv_destroy_qp(b.qp), 0);
    a.qp = make_qp(a);
    b.qp = make_qp(b);
    connect(a, b);
    qps[i] = std::exchange(a.qp, make_qp(a));
    peers[i] = std::exchange(b.qp, make_qp(b));
  }
  std::atomic<bool> stop{false};
  std::vector<std::thread> engines;
  engines.reserve(2);
  for (int i = 0; i < 2; ++i)
    engines.emplace_back([&] {
      while (!stop) {
        faultline_progress(a.context);
        faultline_progress(b.context);
      }
    });
  std::array<uint64_t, kQps> posted{};
  std::array<uint64_t, kQps> seen{};
  uint64_t done = 0;
  uint64_t rounds = 0;
  ibv_sge sge = sge_of(local, 0, 64);
  while (done < kQps * kEach) {
    for (size_t i = 0; i < kQps; ++i) {
      if (posted[i] == kEach || posted[i] - seen[i] == 16) continue;
      ibv_send_wr wr{};
      wr.wr_id = i << 32 | posted[i];
      wr.opcode = IBV_WR_RDMA_WRITE;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.wr.rdma = {to.address(), remote->rkey};
      ibv_send_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_send(qps[i], &wr, &bad), 0);
      ++posted[i];
    }
    if (++rounds % 64 == 0) {
      ASSERT_EQ(ibv_resize_cq(a.cq, rounds % 128 == 0 ? 512 : 128), 0);
    }
    std::array<ibv_wc, 8> wc{};
    const int got = ibv_poll_cq(a.cq, 8, wc.data());
    ASSERT_GE(got, 0);
    for (int k = 0; k < got; ++k) {
      const ibv_wc& one = wc[static_cast<size_t>(k)];
      ASSERT_EQ(one.status, IBV_WC_SUCCESS);
      const size_t i = one.wr_id >> 32;
      ASSERT_EQ(one.wr_id & 0xffffffffU, seen[i]++) << "in order on each QP";
      ++done;
    }
  }
  stop = true;
  for (std::thread& engine : engines) engine.join();
  std::vector<faultline_counter> counters(
      static_cast<size_t>(faultline_query_counters(a.context, nullptr, 0)));
  faultline_query_counters(a.context, counters.data(), counters.size());
  for (const faultline_counter& counter : counters)
    if (std::string(counter.name) == "transport.messages_sent") {
      EXPECT_EQ(counter.value, kQps * kEach) << "of all cores";
    }
  for (size_t i = 0; i < kQps; ++i) {
    EXPECT_EQ(ibv_destroy_qp(qps[i]), 0);
    EXPECT_EQ(ibv_destroy_qp(peers[i]), 0);
  }
}

}  // namespace

}  // namespace faultline::verbs::test::cores_test
