// SPDX-License-Identifier: BSD-3-Clause
// Data through the transports other than plain RC and UD: UC, shared receives, XRC, multicast, and a draining
// send queue.
#include <algorithm>
#include <utility>

#include <endian.h>
#include <fcntl.h>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::qp_types_test {

namespace {

ibv_send_wr send_of(ibv_sge& sge, ibv_wr_opcode opcode = IBV_WR_SEND) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  return wr;
}

/// Waits for the next asynchronous event of that type while driving the engines. Returns false if none
/// arrives.
bool await_event(const End& end, const End& other, ibv_event_type type, ibv_async_event& event) {
  EXPECT_EQ(fcntl(end.context->async_fd, F_SETFL, O_NONBLOCK), 0);
  for (int turn = 0; turn < 200000; ++turn) {
    faultline_progress(end.context);
    faultline_progress(other.context);
    while (ibv_get_async_event(end.context, &event) == 0) {
      ibv_ack_async_event(&event);
      if (event.event_type == type) return true;
    }
  }
  return false;
}

TEST(Uc, SendsAndWritesButHearsNothingBack) {
  EndOptions uc;
  uc.type = IBV_QPT_UC;
  const Pages from(16384);
  const Pages to(16384);
  End a("mem0", uc);
  End b("mem1", uc);
  ibv_mr* const local = a.add_region(from);
  ibv_mr* const remote = b.add_region(to);
  connect(a, b);
  from.fill(3);
  ASSERT_EQ(b.post_receive(1, {sge_of(remote, 0, 9000)}), 0);
  ibv_sge sge = sge_of(local, 0, 9000);
  ASSERT_EQ(a.post_send(send_of(sge)), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  const ibv_wc received = completion(b, a);
  EXPECT_EQ(received.byte_len, 9000U);
  EXPECT_EQ(std::memcmp(to.data(), from.data(), 9000), 0);
  ASSERT_EQ(b.post_receive(2, {}), 0);
  ibv_send_wr write = send_of(sge, IBV_WR_RDMA_WRITE_WITH_IMM);
  write.imm_data = htobe32(8);
  write.wr.rdma = {to.address() + 4096, remote->rkey};
  ASSERT_EQ(a.post_send(write), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(be32toh(completion(b, a).imm_data), 8U);
  EXPECT_EQ(std::memcmp(to.data() + 4096, from.data(), 9000), 0);
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV, IBV_WR_ATOMIC_WRITE}) {
    sge = sge_of(local, 0, 8);
    EXPECT_EQ(a.post_send(send_of(sge, opcode)), EINVAL) << opcode;
  }
}

class SharedData : public ::testing::Test {
 protected:
  void SetUp() override {
    ibv_srq_init_attr init{nullptr, {8, 1, 0}};
    srq = ibv_create_srq(b.pd, &init);
    ASSERT_NE(srq, nullptr);
    local = a.add_region(from);
    remote = b.add_region(to);
    from.fill(5);
    for (Pair& pair : pairs) {
      recreate(a, nullptr);
      recreate(b, srq);
      connect(a, b);
      pair = {std::exchange(a.qp, nullptr), std::exchange(b.qp, nullptr)};
    }
  }
  void TearDown() override {
    for (const Pair& pair : pairs) {
      EXPECT_EQ(ibv_destroy_qp(pair.sender), 0);
      EXPECT_EQ(ibv_destroy_qp(pair.receiver), 0);
    }
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
  }
  static void recreate(End& end, ibv_srq* srq) {
    if (end.qp != nullptr) {
      ASSERT_EQ(ibv_destroy_qp(end.qp), 0);
    }
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = end.cq;
    init.srq = srq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {8, 8, 1, 1, 0};
    end.qp = ibv_create_qp(end.pd, &init);
    ASSERT_NE(end.qp, nullptr);
  }
  [[nodiscard]] int post(uint64_t wr_id, size_t offset, size_t bytes) const {
    ibv_sge sge = sge_of(remote, offset, bytes);
    ibv_recv_wr wr{wr_id, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq, &wr, &bad);
  }
  void send(size_t pair, uint32_t bytes = 100) const {
    ibv_sge sge = sge_of(local, pair * 100, bytes);
    ibv_send_wr wr = send_of(sge);
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(pairs[pair].sender, &wr, &bad), 0);
    EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  }
  struct Pair {
    ibv_qp* sender = nullptr;
    ibv_qp* receiver = nullptr;
  };
  End a{"mem0"};
  End b{"mem1"};
  const Pages from{4096};
  const Pages to{8192};
  std::array<Pair, 3> pairs;
  ibv_srq* srq = nullptr;
  ibv_mr* local = nullptr;
  ibv_mr* remote = nullptr;
};

TEST_F(SharedData, AnyQpsMessageTakesTheNextReceive) {
  for (uint64_t i = 0; i < 6; ++i) ASSERT_EQ(post(i, i * 100, 100), 0);
  const std::array<size_t, 6> order{2, 0, 1, 1, 0, 2};
  for (size_t i = 0; i < order.size(); ++i) {
    send(order[i]);
    const ibv_wc wc = completion(b, a);
    EXPECT_EQ(wc.wr_id, i);
    EXPECT_EQ(wc.qp_num, pairs[order[i]].receiver->qp_num);
    EXPECT_EQ(std::memcmp(to.data() + i * 100, from.data() + order[i] * 100, 100), 0);
  }
}

TEST_F(SharedData, TheLimitMakesOneEventUntilItIsArmedAgain) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(post(i, 0, 100), 0);
  ibv_srq_attr attr{};
  attr.srq_limit = 3;
  ASSERT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
  send(0);
  send(1);  // two are left: fewer than three
  ibv_async_event event{};
  ASSERT_TRUE(await_event(b, a, IBV_EVENT_SRQ_LIMIT_REACHED, event));
  EXPECT_EQ(event.element.srq, srq);
  ASSERT_EQ(ibv_query_srq(srq, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 0U) << "ibv_query_srq(3): no longer armed";
}

TEST_F(SharedData, AResizeKeepsWhatIsPosted) {
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(post(i, i * 100, 100), 0);
  EXPECT_EQ(post(8, 0, 100), ENOMEM);
  ibv_srq_attr attr{};
  attr.max_wr = 4;
  EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL) << "eight are posted";
  attr.max_wr = 32;
  ASSERT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
  ASSERT_EQ(ibv_query_srq(srq, &attr), 0);
  EXPECT_GE(attr.max_wr, 32U);
  EXPECT_EQ(post(8, 800, 100), 0);
  for (uint64_t i = 0; i < 9; ++i) {
    send(i % 3);
    EXPECT_EQ(completion(b, a).wr_id, i);
  }
}

TEST_F(SharedData, AQpInErrorTellsWhenItHasTakenItsLastReceive) {
  ASSERT_EQ(post(0, 0, 100), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(pairs[0].receiver, &attr, IBV_QP_STATE), 0);
  ibv_async_event event{};
  ASSERT_TRUE(await_event(b, a, IBV_EVENT_QP_LAST_WQE_REACHED, event));
  EXPECT_EQ(event.element.qp, pairs[0].receiver);
  send(1);
  EXPECT_EQ(completion(b, a).wr_id, 0U) << "the SRQ goes on for the others";
}

/// One XRC target, two SRQs: the message names the SRQ whose receive it consumes.
TEST(XrcData, AMessageNamesItsSrq) {
  const Pages from(4096);
  const Pages to(4096);
  End a("mem0");
  End b("mem1");
  ibv_mr* const local = a.add_region(from);
  ibv_mr* const remote = b.add_region(to);
  from.fill(9);
  ibv_xrcd_init_attr xrcd_init{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
  ibv_xrcd* const xrcd = ibv_open_xrcd(b.context, &xrcd_init);
  ASSERT_NE(xrcd, nullptr);
  std::array<ibv_srq*, 2> srqs{};
  std::array<uint32_t, 2> numbers{};
  for (size_t i = 0; i < srqs.size(); ++i) {
    ibv_srq_init_attr_ex init{};
    init.attr = {4, 1, 0};
    init.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    init.srq_type = IBV_SRQT_XRC;
    init.pd = b.pd;
    init.xrcd = xrcd;
    init.cq = b.cq;
    srqs[i] = ibv_create_srq_ex(b.context, &init);
    ASSERT_NE(srqs[i], nullptr);
    ASSERT_EQ(ibv_get_srq_num(srqs[i], &numbers[i]), 0);
    ibv_sge sge = sge_of(remote, i * 1000, 1000);
    ibv_recv_wr wr{i, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srqs[i], &wr, &bad), 0);
  }
  EXPECT_EQ(ibv_destroy_qp(a.qp), 0);
  EXPECT_EQ(ibv_destroy_qp(b.qp), 0);
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_SEND;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = a.pd;
  init.send_cq = a.cq;
  init.cap = {8, 0, 1, 0, 64};
  init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
  a.qp = ibv_create_qp_ex(a.context, &init);
  ASSERT_NE(a.qp, nullptr);
  init = {};
  init.qp_type = IBV_QPT_XRC_RECV;
  init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  init.xrcd = xrcd;
  b.qp = ibv_create_qp_ex(b.context, &init);
  ASSERT_NE(b.qp, nullptr);
  connect(a, b);

  ibv_sge sge = sge_of(local, 0, 500);
  ibv_send_wr wr = send_of(sge);
  wr.qp_type.xrc.remote_srqn = numbers[1];
  ASSERT_EQ(a.post_send(wr), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion(b, a).wr_id, 1U);
  EXPECT_EQ(std::memcmp(to.data() + 1000, from.data(), 500), 0);

  ibv_qp_ex* const qpx = ibv_qp_to_qp_ex(a.qp);
  ibv_wr_start(qpx);
  ibv_wr_send(qpx);
  ibv_wr_set_sge(qpx, local->lkey, from.address(), 8);
  EXPECT_EQ(ibv_wr_complete(qpx), EINVAL) << "no SRQ was named";
  ibv_wr_start(qpx);
  qpx->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(qpx);
  ibv_wr_set_xrc_srqn(qpx, numbers[0]);
  ibv_wr_set_sge(qpx, local->lkey, from.address() + 100, 300);
  ASSERT_EQ(ibv_wr_complete(qpx), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion(b, a).wr_id, 0U);
  EXPECT_EQ(std::memcmp(to.data(), from.data() + 100, 300), 0);

  EXPECT_EQ(ibv_destroy_qp(b.qp), 0);
  b.qp = nullptr;
  for (ibv_srq* srq : srqs) EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

class Multicast : public ::testing::Test {
 protected:
  static EndOptions options() {
    EndOptions result;
    result.type = IBV_QPT_UD;
    return result;
  }
  /// ::ffff:239.1.2.x
  static ibv_gid group(uint8_t last) {
    ibv_gid gid{};
    gid.raw[10] = gid.raw[11] = 0xff;
    gid.raw[12] = 239;
    gid.raw[13] = 1;
    gid.raw[14] = 2;
    gid.raw[15] = last;
    return gid;
  }
  End a{"mem0", options()};
  End b{"mem1", options()};
  End c{"mem1", options()};
};

TEST_F(Multicast, AttachAndDetachAreChecked) {
  const ibv_gid gid = group(1);
  const End rc("mem0");
  EXPECT_EQ(ibv_attach_mcast(rc.qp, &gid, 0), EINVAL) << "ibv_attach_mcast(3): UD alone";
  const ibv_gid unicast = b.gid();
  EXPECT_EQ(ibv_attach_mcast(b.qp, &unicast, 0), EINVAL);
  EXPECT_EQ(ibv_detach_mcast(b.qp, &gid, 0), EINVAL) << "not attached";
  const int before = multicast_joins();
  ASSERT_EQ(ibv_attach_mcast(b.qp, &gid, 0), 0);
  EXPECT_EQ(ibv_attach_mcast(b.qp, &gid, 0), 0) << "again: still a single copy";
  EXPECT_EQ(multicast_joins(), before + 1);
  EXPECT_EQ(ibv_destroy_qp(b.qp), EBUSY) << "ibv_create_qp(3)";
  EXPECT_EQ(ibv_detach_mcast(b.qp, &gid, 0), 0);
  EXPECT_EQ(multicast_joins(), before);
  EXPECT_EQ(ibv_detach_mcast(b.qp, &gid, 0), EINVAL);
  ibv_gid ipv6{};
  ipv6.raw[0] = 0xff;
  ipv6.raw[1] = 0x0e;
  EXPECT_EQ(ibv_attach_mcast(b.qp, &ipv6, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(b.qp, &ipv6, 0), 0);
}

TEST_F(Multicast, AGroupOfTheOtherFamilyIsReachedFromAGidOfThatFamily) {
  const Pages from(4096);
  const Pages to(8192);
  ibv_mr* const local = a.add_region(from);
  ibv_mr* const at_b = b.add_region(to);
  for (const End* end : {&a, &b}) ASSERT_EQ(end->to_init() | end->to_rtr({}, 0) | end->to_rts(), 0);
  ibv_gid ipv6{};
  ipv6.raw[0] = 0xff;
  ipv6.raw[1] = 0x0e;
  ipv6.raw[15] = 5;
  for (const auto& [gid, index, family] : {std::tuple(ipv6, 0, 6), std::tuple(group(5), 1, 4)}) {
    SCOPED_TRACE(family);
    ibv_gid own{};
    ASSERT_EQ(ibv_query_gid(a.context, 1, 1 - index, &own), 0);
    ASSERT_EQ(ibv_attach_mcast(b.qp, &gid, 0), 0);
    ASSERT_EQ(b.post_receive(1, {sge_of(at_b, 0, 2048)}), 0);
    ibv_ah_attr route = End::rtr_attributes(gid, 0).ah_attr;
    route.grh.sgid_index = static_cast<uint8_t>(index);
    ibv_ah* const ah = ibv_create_ah(a.pd, &route);
    ASSERT_NE(ah, nullptr);
    ibv_sge sge = sge_of(local, 0, 600);
    ibv_send_wr wr = send_of(sge);
    wr.wr.ud = {ah, 0xffffff, kQkey};
    ASSERT_EQ(a.post_send(wr), 0);
    EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion(b, a).status, IBV_WC_SUCCESS);
    // The GRH is the IPv6 header, or 20 bytes and the IPv4 header (IBA A17.4.5.1).
    if (family == 6)
      EXPECT_EQ(std::memcmp(to.data() + 8, own.raw, sizeof own.raw), 0);
    else
      EXPECT_EQ(std::memcmp(to.data() + 32, own.raw + 12, 4), 0);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
    EXPECT_EQ(ibv_detach_mcast(b.qp, &gid, 0), 0);
  }
}

TEST_F(Multicast, EachAttachedQpGetsItsCopyOnce) {
  constexpr uint32_t kMulticastQpn = 0xffffff;
  const Pages from(4096);
  const Pages to(8192);
  const Pages other(8192);
  ibv_mr* const local = a.add_region(from);
  ibv_mr* const at_b = b.add_region(to);
  ibv_mr* const at_c = c.add_region(other);
  from.fill(2);
  for (const End* end : {&a, &b, &c}) {
    ASSERT_EQ(end->to_init(), 0);
    ASSERT_EQ(end->to_rtr({}, 0), 0);
    ASSERT_EQ(end->to_rts(), 0);
  }
  const ibv_gid gid = group(7);
  for (const End* end : {&b, &c}) ASSERT_EQ(ibv_attach_mcast(end->qp, &gid, 0), 0);
  ASSERT_EQ(b.post_receive(1, {sge_of(at_b, 0, 2048)}), 0);
  ASSERT_EQ(b.post_receive(2, {sge_of(at_b, 2048, 2048)}), 0);
  ASSERT_EQ(c.post_receive(3, {sge_of(at_c, 0, 2048)}), 0);
  ASSERT_EQ(c.post_receive(4, {sge_of(at_c, 2048, 2048)}), 0);
  ibv_ah_attr route = End::rtr_attributes(gid, 0).ah_attr;
  ibv_ah* const ah = ibv_create_ah(a.pd, &route);
  ASSERT_NE(ah, nullptr);
  const auto send = [&](size_t offset) {
    ibv_sge sge = sge_of(local, offset, 600);
    ibv_send_wr wr = send_of(sge);
    wr.wr.ud = {ah, kMulticastQpn, kQkey};
    ASSERT_EQ(a.post_send(wr), 0);
    EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  };
  send(0);
  const ibv_wc first = completion(b, a);
  EXPECT_EQ(first.wr_id, 1U);
  EXPECT_EQ(first.byte_len, 640U);
  EXPECT_EQ(first.src_qp, a.qp->qp_num);
  EXPECT_EQ(completion(c, a).wr_id, 3U);
  EXPECT_EQ(std::memcmp(to.data() + 40, from.data(), 600), 0);
  EXPECT_EQ(std::memcmp(other.data() + 40, from.data(), 600), 0);
  // A detached QP receives nothing more; the other one does.
  ASSERT_EQ(ibv_detach_mcast(b.qp, &gid, 0), 0);
  send(1000);
  EXPECT_EQ(completion(c, a).wr_id, 4U);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(b.cq, 1, &wc), 0);
  ASSERT_EQ(ibv_detach_mcast(c.qp, &gid, 0), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(Multicast, AQpThatBlocksItsOwnDoesNotGetThem) {
  constexpr uint32_t kMulticastQpn = 0xffffff;
  const Pages pages(8192);
  ibv_mr* const mr = a.add_region(pages);
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = a.cq;
  init.qp_type = IBV_QPT_UD;
  init.cap = {4, 4, 1, 1, 0};
  init.pd = a.pd;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  init.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  ibv_qp* const blocking = ibv_create_qp_ex(a.context, &init);
  ASSERT_NE(blocking, nullptr);
  ibv_qp* const plain = std::exchange(a.qp, blocking);
  const ibv_gid gid = group(9);
  ibv_ah_attr route = End::rtr_attributes(gid, 0).ah_attr;
  ibv_ah* const ah = ibv_create_ah(a.pd, &route);
  ASSERT_NE(ah, nullptr);
  for (ibv_qp* const qp : {blocking, plain}) {
    a.qp = qp;
    ASSERT_EQ(a.to_init(), 0);
    ASSERT_EQ(a.to_rtr({}, 0), 0);
    ASSERT_EQ(a.to_rts(), 0);
    ASSERT_EQ(ibv_attach_mcast(qp, &gid, 0), 0);
    ASSERT_EQ(a.post_receive(1, {sge_of(mr, 4096, 2048)}), 0);
  }
  ibv_sge sge = sge_of(mr, 0, 600);
  ibv_send_wr wr = send_of(sge);
  wr.wr.ud = {ah, kMulticastQpn, kQkey};
  a.qp = blocking;
  ASSERT_EQ(a.post_send(wr), 0);
  std::vector<ibv_wc> done = completions(a, b, 2);
  std::sort(done.begin(), done.end(), [](const ibv_wc& x, const ibv_wc& y) { return x.opcode < y.opcode; });
  EXPECT_EQ(done[0].opcode, IBV_WC_SEND);
  EXPECT_EQ(done[1].opcode, IBV_WC_RECV);
  EXPECT_EQ(done[1].qp_num, plain->qp_num) << "the other member of the group alone";
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(a.cq, 1, &wc), 0);
  // The QP receives datagrams of the other member, and the other member its own.
  a.qp = plain;
  ASSERT_EQ(a.post_receive(1, {sge_of(mr, 4096, 2048)}), 0);
  ASSERT_EQ(a.post_send(wr), 0);
  completions(a, b, 3);
  for (ibv_qp* const qp : {blocking, plain}) ASSERT_EQ(ibv_detach_mcast(qp, &gid, 0), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_destroy_qp(blocking), 0);
}

TEST(Drain, SqdTellsWhenWhatWasBegunIsDoneAndHoldsTheRest) {
  const Pages from(65536);
  const Pages to(65536);
  End a("mem0");
  End b("mem1");
  ibv_mr* const local = a.add_region(from);
  ibv_mr* const remote = b.add_region(to);
  connect(a, b);
  ibv_sge sge = sge_of(local, 0, 65536);
  ibv_send_wr write = send_of(sge, IBV_WR_RDMA_WRITE);
  write.wr.rdma = {to.address(), remote->rkey};
  ASSERT_EQ(a.post_send(write), 0);
  faultline_progress(a.context);  // begun, not finished
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_SQD);
  EXPECT_EQ(attr.sq_draining, 1);
  ibv_async_event event{};
  ASSERT_TRUE(await_event(a, b, IBV_EVENT_SQ_DRAINED, event));
  EXPECT_EQ(event.element.qp, a.qp);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  ASSERT_EQ(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.sq_draining, 0);
  write.wr_id = 2;
  ASSERT_EQ(a.post_send(write), 0) << "taken, and held";
  ibv_wc wc{};
  for (int turn = 0; turn < 200; ++turn) {
    faultline_progress(b.context);
    ASSERT_EQ(ibv_poll_cq(a.cq, 1, &wc), 0);
  }
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
  EXPECT_EQ(completion(a, b).wr_id, 2U);
}

}  // namespace

}  // namespace faultline::verbs::test::qp_types_test
