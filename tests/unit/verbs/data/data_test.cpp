// SPDX-License-Identifier: BSD-3-Clause
// Data through the whole stack below a program: every opcode, pinned and on-demand memory, and errors that
// must be reported.
#include <endian.h>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::data_test {

namespace {

constexpr size_t kBytes = 40000;  // forty packets, the last one short

ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge& sge, uint64_t wr_id = 0) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = opcode;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  return wr;
}

class RcData : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    local = a.add_region(from, kAllRights | GetParam());
    remote = b.add_region(to, kAllRights | GetParam());
    connect(a, b);
  }
  End a{"mem0"};
  End b{"mem1"};
  const Pages from{kBytes};
  const Pages to{kBytes};
  ibv_mr* local = nullptr;
  ibv_mr* remote = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Memory, RcData, ::testing::Values(0, static_cast<int>(IBV_ACCESS_ON_DEMAND)),
                         [](const auto& memory) { return memory.param == 0 ? "Pinned" : "OnDemand"; });

TEST_P(RcData, SendArrivesInTheReceivesElements) {
  from.fill(1);
  ASSERT_EQ(b.post_receive(5, {sge_of(remote, 0, 1000), sge_of(remote, 1000, kBytes - 1000)}), 0);
  ibv_sge sge = sge_of(local, 0, kBytes);
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, sge, 9);
  wr.imm_data = htobe32(0xfeedbeefU);
  ASSERT_EQ(a.post_send(wr), 0);
  const ibv_wc sent = completion(a, b);
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.wr_id, 9U);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  EXPECT_EQ(sent.qp_num, a.qp->qp_num);
  const ibv_wc received = completion(b, a);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.wr_id, 5U);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.byte_len, kBytes);
  EXPECT_EQ(received.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(be32toh(received.imm_data), 0xfeedbeefU);
  EXPECT_EQ(std::memcmp(from.data(), to.data(), kBytes), 0);
}

TEST_P(RcData, WriteAndReadMoveEveryByte) {
  from.fill(2);
  ibv_sge sge = sge_of(local, 0, kBytes);
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE, sge);
  write.wr.rdma = {remote->rkey == 0 ? 0 : to.address(), remote->rkey};
  ASSERT_EQ(a.post_send(write), 0);
  const ibv_wc written = completion(a, b);
  EXPECT_EQ(written.status, IBV_WC_SUCCESS);
  EXPECT_EQ(written.opcode, IBV_WC_RDMA_WRITE);
  ASSERT_EQ(std::memcmp(from.data(), to.data(), kBytes), 0);

  to.fill(77);
  ibv_send_wr read = request(IBV_WR_RDMA_READ, sge);
  read.wr.rdma = {to.address(), remote->rkey};
  ASSERT_EQ(a.post_send(read), 0);
  const ibv_wc got = completion(a, b);
  EXPECT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(got.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(std::memcmp(from.data(), to.data(), kBytes), 0);
}

TEST_P(RcData, WriteWithImmediateTakesAReceive) {
  from.fill(3);
  ASSERT_EQ(b.post_receive(6, {}), 0);
  ibv_sge sge = sge_of(local, 0, 100);
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE_WITH_IMM, sge);
  write.imm_data = htobe32(7);
  write.wr.rdma = {to.address(), remote->rkey};
  ASSERT_EQ(a.post_send(write), 0);
  const ibv_wc received = completion(b, a);
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.wr_id, 6U);
  EXPECT_EQ(be32toh(received.imm_data), 7U);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(from.data(), to.data(), 100), 0);
}

TEST_P(RcData, UnsignalledRequestsCompleteInSilence) {
  from.fill(4);
  ibv_sge sge = sge_of(local, 0, 64);
  ibv_send_wr quiet = request(IBV_WR_RDMA_WRITE, sge, 1);
  quiet.wr.rdma = {to.address(), remote->rkey};
  ibv_send_wr loud = quiet;
  loud.wr_id = 2;
  quiet.send_flags = 0;
  // More than the total capacity of the queue, so that slots of unsignalled requests must be reused.
  for (int round = 0; round < 40; ++round) {
    ASSERT_EQ(a.post_send(quiet), 0);
    ASSERT_EQ(a.post_send(quiet), 0);
    ASSERT_EQ(a.post_send(loud), 0);
    EXPECT_EQ(completion(a, b).wr_id, 2U);
  }
}

/// CVE-2021-47076: a bad lkey caused no completion.
TEST_P(RcData, ABadLkeyIsACompletionWithAnErrorForEachOpcode) {
  struct Case {
    ibv_wr_opcode opcode;
    ibv_wc_status status;
  };
  for (const Case& c :
       {Case{IBV_WR_SEND, IBV_WC_LOC_PROT_ERR}, Case{IBV_WR_SEND_WITH_IMM, IBV_WC_LOC_PROT_ERR},
        Case{IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR}, Case{IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_LOC_PROT_ERR},
        Case{IBV_WR_RDMA_READ, IBV_WC_LOC_PROT_ERR}}) {
    SCOPED_TRACE(c.opcode);
    End x("mem0");
    End y("mem1");
    ibv_mr* const target = y.add_region(to, kAllRights | GetParam());
    connect(x, y);
    ASSERT_EQ(y.post_receive(1, {sge_of(target, 0, 4096)}), 0);
    ibv_sge sge{from.address(), 64, 0xdead00};
    ibv_send_wr wr = request(c.opcode, sge, 33);
    wr.send_flags = 0;  // an error also completes unsignalled requests
    wr.wr.rdma = {to.address(), target->rkey};
    ASSERT_EQ(x.post_send(wr), 0);
    const ibv_wc wc = completion(x, y);
    EXPECT_EQ(wc.wr_id, 33U);
    EXPECT_EQ(wc.status, c.status);
  }
}

TEST_P(RcData, ABadRkeyIsARemoteAccessErrorAndAnEventThere) {
  ibv_sge sge = sge_of(local, 0, 64);
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE, sge);
  write.wr.rdma = {to.address(), remote->rkey ^ 0xff};
  ASSERT_EQ(a.post_send(write), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_REM_ACCESS_ERR);
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(b.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(event.element.qp, b.qp);
  ibv_ack_async_event(&event);
}

TEST(Loopback, TwoQpsOfOneDevice) {
  const Pages from(8192);
  const Pages to(8192);
  End a("mem0");
  End b("mem0");
  ibv_mr* const local = a.add_region(from);
  ibv_mr* const remote = b.add_region(to);
  connect(a, b);
  from.fill(8);
  ibv_sge sge = sge_of(local, 0, 8192);
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE, sge);
  write.wr.rdma = {to.address(), remote->rkey};
  ASSERT_EQ(a.post_send(write), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(from.data(), to.data(), 8192), 0);
}

TEST(Reregistration, ItsKeysStayAndStandForTheNewRangeAlone) {
  const Pages from(4096);
  const Pages to(8192);
  End a("mem0");
  End b("mem1");
  ibv_mr* const local = a.add_region(from);
  ibv_mr* const remote = b.add_region(to);
  connect(a, b);
  const uint32_t key = remote->rkey;
  ASSERT_EQ(ibv_rereg_mr(remote, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, to.data() + 4096, 4096, 0), 0);
  EXPECT_EQ(remote->rkey, key);
  EXPECT_EQ(remote->lkey, key);
  from.fill(12);
  ibv_sge sge = sge_of(local, 0, 4096);
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE, sge);
  write.wr.rdma = {to.address() + 4096, key};
  ASSERT_EQ(a.post_send(write), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(from.data(), to.data() + 4096, 4096), 0);
  write.wr.rdma = {to.address(), key};
  ASSERT_EQ(a.post_send(write), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_REM_ACCESS_ERR);
}

TEST(Reregistration, TheNewRightsAndDomainHoldAtOnce) {
  const Pages from(4096);
  const Pages to(4096);
  End a("mem0");
  End b("mem1");
  ibv_mr* const local = a.add_region(from);
  ibv_mr* const remote = b.add_region(to);
  connect(a, b);
  ibv_sge sge = sge_of(local, 0, 64);
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE, sge);
  write.wr.rdma = {to.address(), remote->rkey};
  const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  ASSERT_EQ(ibv_rereg_mr(remote, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, rights), 0);
  ASSERT_EQ(a.post_send(write), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_REM_ACCESS_ERR);

  // Reconnects the QP: its previous life leaves no state, and a region of another protection domain is
  // refused.
  ibv_qp_attr reset{};
  for (const End* end : {&a, &b}) ASSERT_EQ(ibv_modify_qp(end->qp, &reset, IBV_QP_STATE), 0);
  ibv_pd* const other = ibv_alloc_pd(b.context);
  const int both = IBV_REREG_MR_CHANGE_ACCESS | IBV_REREG_MR_CHANGE_PD;
  ASSERT_EQ(ibv_rereg_mr(remote, both, other, nullptr, 0, kAllRights), 0);
  connect(a, b);
  ASSERT_EQ(a.post_send(write), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_REM_ACCESS_ERR);
  for (const End* end : {&a, &b}) ASSERT_EQ(ibv_modify_qp(end->qp, &reset, IBV_QP_STATE), 0);
  ASSERT_EQ(ibv_rereg_mr(remote, IBV_REREG_MR_CHANGE_PD, b.pd, nullptr, 0, 0), 0);
  connect(a, b);
  ASSERT_EQ(a.post_send(write), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

class UdData : public ::testing::Test {
 protected:
  void SetUp() override {
    local = a.add_region(from);
    remote = b.add_region(to, kAllRights | IBV_ACCESS_ON_DEMAND);
    connect(a, b);
    ibv_ah_attr attr = End::rtr_attributes(b.gid(), 0).ah_attr;
    ah = ibv_create_ah(a.pd, &attr);
    ASSERT_NE(ah, nullptr);
  }
  void TearDown() override { EXPECT_EQ(ibv_destroy_ah(ah), 0); }
  /// A datagram whose page arrives late may be lost. Tests that need the first datagram make the page
  /// resident.
  void warm_up() const {
    ibv_sge all = sge_of(remote, 0, to.size());
    ASSERT_EQ(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &all, 1), 0);
  }
  static EndOptions options() {
    EndOptions result;
    result.type = IBV_QPT_UD;
    return result;
  }
  ibv_send_wr datagram(ibv_sge& sge, uint32_t qkey) const {
    ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, sge);
    wr.imm_data = htobe32(5);
    wr.wr.ud = {ah, b.qp->qp_num, qkey};
    return wr;
  }
  End a{"mem0", options()};
  End b{"mem1", options()};
  const Pages from{8192};
  const Pages to{8192};
  ibv_mr* local = nullptr;
  ibv_mr* remote = nullptr;
  ibv_ah* ah = nullptr;
};

TEST_F(UdData, ADatagramArrivesBehindItsGrhAndCanBeAnswered) {
  warm_up();
  from.fill(5);
  ASSERT_EQ(b.post_receive(4, {sge_of(remote, 0, 2048)}), 0);
  ibv_sge sge = sge_of(local, 0, 1000);
  ASSERT_EQ(a.post_send(datagram(sge, kQkey)), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  ibv_wc wc = completion(b, a);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, 1040U);
  EXPECT_EQ(wc.src_qp, a.qp->qp_num);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_GRH | IBV_WC_WITH_IMM));
  EXPECT_EQ(be32toh(wc.imm_data), 5U);
  EXPECT_EQ(std::memcmp(to.data() + 40, from.data(), 1000), 0);
  ibv_grh grh;
  std::memcpy(&grh, to.data(), sizeof grh);
  ibv_ah_attr back{};
  ASSERT_EQ(ibv_init_ah_from_wc(b.context, 1, &wc, &grh, &back), 0);
  const ibv_gid sender = a.gid();
  EXPECT_EQ(std::memcmp(&back.grh.dgid, &sender, sizeof sender), 0);
}

/// The receiver finds the route of an address handle in its GRH, over IPv4 and over IPv6.
TEST_F(UdData, TrafficClassHopLimitAndFlowLabelReachThePeer) {
  warm_up();
  from.fill(5);
  for (const uint8_t index : {uint8_t{0}, uint8_t{1}}) {
    SCOPED_TRACE(static_cast<int>(index));
    ibv_ah_attr attr = End::rtr_attributes({}, 0).ah_attr;
    ASSERT_EQ(ibv_query_gid(b.context, 1, index, &attr.grh.dgid), 0);
    attr.grh.sgid_index = index;
    attr.grh.traffic_class = 0x48;
    attr.grh.hop_limit = 9;
    attr.grh.flow_label = 0xfff12345;  // only 20 bits are used
    ibv_ah* const route = ibv_create_ah(a.pd, &attr);
    ASSERT_NE(route, nullptr);
    ASSERT_EQ(b.post_receive(1, {sge_of(remote, 0, 2048)}), 0);
    ibv_sge sge = sge_of(local, 0, 100);
    ibv_send_wr wr = datagram(sge, kQkey);
    wr.wr.ud.ah = route;
    ASSERT_EQ(a.post_send(wr), 0);
    EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
    ibv_wc wc = completion(b, a);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.sl, index == 0 ? 8 + 2 : 8 + 1) << "a UDP header over IPv4, over IPv6";
    ibv_grh grh;
    std::memcpy(&grh, to.data(), sizeof grh);
    ibv_ah_attr back{};
    ASSERT_EQ(ibv_init_ah_from_wc(b.context, 1, &wc, &grh, &back), 0);
    EXPECT_EQ(back.sl, 0);
    EXPECT_EQ(back.grh.traffic_class, 0x48);
    EXPECT_EQ(back.grh.hop_limit, 9);
    EXPECT_EQ(back.grh.flow_label, index == 0 ? 0U : 0x12345U) << "IPv4 has none";
    EXPECT_EQ(back.grh.sgid_index, index);
    EXPECT_EQ(ibv_destroy_ah(route), 0);
  }
  ibv_ah_attr mixed = End::rtr_attributes(b.gid(), 0).ah_attr;
  mixed.grh.sgid_index = 1;
  EXPECT_EQ(ibv_create_ah(a.pd, &mixed), nullptr) << "an IPv6 source and an IPv4 destination";
}

TEST_F(UdData, AQkeyWithItsHighBitSetMeansTheQpsOwn) {
  warm_up();
  ASSERT_EQ(b.post_receive(1, {sge_of(remote, 0, 2048)}), 0);
  ibv_sge sge = sge_of(local, 0, 8);
  ASSERT_EQ(a.post_send(datagram(sge, 0x80000000U)), 0);
  EXPECT_EQ(completion(b, a).status, IBV_WC_SUCCESS);
}

TEST_F(UdData, AWrongQkeyNeverArrives) {
  warm_up();
  ASSERT_EQ(b.post_receive(1, {sge_of(remote, 0, 2048)}), 0);
  ASSERT_EQ(b.post_receive(2, {sge_of(remote, 0, 2048)}), 0);
  ibv_sge sge = sge_of(local, 0, 8);
  ASSERT_EQ(a.post_send(datagram(sge, kQkey + 1)), 0);
  ibv_send_wr right = datagram(sge, kQkey);
  right.imm_data = htobe32(6);
  ASSERT_EQ(a.post_send(right), 0);
  EXPECT_EQ(be32toh(completion(b, a).imm_data), 6U) << "the first to arrive is the right one";
}

TEST_F(UdData, AColdReceiveIsServedWhileTheSenderTriesAgain) {
  from.fill(6);
  ASSERT_EQ(b.post_receive(1, {sge_of(remote, 4096, 2048)}), 0);
  ibv_sge sge = sge_of(local, 0, 1000);
  ibv_wc wc{};
  int got = 0;
  for (int attempt = 0; attempt < 1000 && got == 0; ++attempt) {
    ASSERT_EQ(a.post_send(datagram(sge, kQkey)), 0);
    EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
    for (int turn = 0; turn < 1000 && got == 0; ++turn) got = ibv_poll_cq(b.cq, 1, &wc);
  }
  ASSERT_EQ(got, 1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(to.data() + 4096 + 40, from.data(), 1000), 0);
}

TEST_F(UdData, ALongDatagramIsACompletionWithAnError) {
  ibv_sge sge = sge_of(local, 0, 2049);
  ASSERT_EQ(a.post_send(datagram(sge, kQkey)), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_LOC_LEN_ERR);
}

}  // namespace

}  // namespace faultline::verbs::test::data_test
