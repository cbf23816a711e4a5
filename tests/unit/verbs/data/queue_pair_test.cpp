// SPDX-License-Identifier: BSD-3-Clause
// CQs, QPs and AHs: creation, attributes and their limits, states, destruction.
#include <endian.h>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::queue_pair_test {

namespace {

class QueuePairTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  ibv_qp_init_attr init(ibv_qp_type type = IBV_QPT_RC) const {
    ibv_qp_init_attr result{};
    result.send_cq = result.recv_cq = cq;
    result.qp_type = type;
    result.cap = {4, 4, 2, 2, 16};
    return result;
  }
  /// Returns 0, or the errno of a failed create.
  int error_of(ibv_qp_init_attr attributes) const {
    errno = 0;
    ibv_qp* const qp = ibv_create_qp(pd, &attributes);
    if (qp == nullptr) return errno;
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    return 0;
  }
  ibv_device_attr limits() const {
    ibv_device_attr result{};
    EXPECT_EQ(ibv_query_device(context, &result), 0);
    return result;
  }
  ibv_context* const context = open("mem0");
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_cq* const cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
};

TEST_F(QueuePairTest, CqSizesAreHeldToTheLimit) {
  const auto error_for = [&](int entries, int vector) {
    errno = 0;
    ibv_cq* const made = ibv_create_cq(context, entries, context, nullptr, vector);
    if (made == nullptr) return errno;
    EXPECT_GE(made->cqe, entries);
    EXPECT_EQ(made->cq_context, context);
    EXPECT_EQ(ibv_destroy_cq(made), 0);
    return 0;
  };
  EXPECT_EQ(error_for(0, 0), EINVAL);
  EXPECT_EQ(error_for(-1, 0), EINVAL);
  EXPECT_EQ(error_for(1, 0), 0);
  EXPECT_EQ(error_for(limits().max_cqe, 0), 0);
  EXPECT_EQ(error_for(limits().max_cqe + 1, 0), EINVAL);
  EXPECT_EQ(error_for(1, -1), EINVAL);
  EXPECT_EQ(error_for(1, context->num_comp_vectors), EINVAL);
}

TEST_F(QueuePairTest, AnEmptyPollDrivesTheEngineOnce) {
  ibv_wc wc{};
  const uint64_t before = drives();
  EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
  EXPECT_EQ(drives(), before + 1);
  EXPECT_EQ(ibv_poll_cq(cq, 0, &wc), 0);
  EXPECT_EQ(drives(), before + 1);
  EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0);
}

TEST_F(QueuePairTest, EveryTypeOfTheArchitectureIsThereAndOthersSaySo) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND})
    EXPECT_EQ(error_of(init(type)), 0) << type;
  EXPECT_EQ(error_of(init(IBV_QPT_XRC_RECV)), EINVAL) << "it needs a domain";
  for (const ibv_qp_type type : {IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER})
    EXPECT_EQ(error_of(init(type)), EOPNOTSUPP) << type;
  EXPECT_EQ(error_of(init(static_cast<ibv_qp_type>(1))), EINVAL);
}

TEST_F(QueuePairTest, CapacitiesAreHeldToTheLimitAndReported) {
  const ibv_device_attr limit = limits();
  ibv_qp_init_attr attributes = init();
  attributes.cap = {static_cast<uint32_t>(limit.max_qp_wr), static_cast<uint32_t>(limit.max_qp_wr),
                    static_cast<uint32_t>(limit.max_sge), static_cast<uint32_t>(limit.max_sge), 0};
  EXPECT_EQ(error_of(attributes), 0);
  for (uint32_t ibv_qp_cap::*field : {&ibv_qp_cap::max_send_wr, &ibv_qp_cap::max_recv_wr,
                                      &ibv_qp_cap::max_send_sge, &ibv_qp_cap::max_recv_sge}) {
    ibv_qp_init_attr larger = attributes;
    ++(larger.cap.*field);
    EXPECT_EQ(error_of(larger), EINVAL);
  }
  ibv_qp_init_attr wide = init();
  wide.cap.max_inline_data = 1U << 20;
  EXPECT_EQ(error_of(wide), EINVAL);

  ibv_qp_init_attr asked = init();
  ibv_qp* const qp = ibv_create_qp(pd, &asked);
  ASSERT_NE(qp, nullptr);
  const ibv_qp_init_attr wanted = init();
  EXPECT_GE(asked.cap.max_send_wr, wanted.cap.max_send_wr);
  EXPECT_GE(asked.cap.max_inline_data, wanted.cap.max_inline_data);
  ibv_qp_attr attr{};
  ibv_qp_init_attr queried{};
  EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_CAP, &queried), 0);
  EXPECT_EQ(std::memcmp(&queried.cap, &asked.cap, sizeof asked.cap), 0);
  EXPECT_EQ(std::memcmp(&attr.cap, &asked.cap, sizeof asked.cap), 0);
  EXPECT_EQ(queried.qp_type, IBV_QPT_RC);
  EXPECT_EQ(queried.send_cq, cq);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

/// ibv_query_ece(3), ibv_set_ece(3).
TEST_F(QueuePairTest, NoOptionsOfEnhancedConnectionEstablishmentStay) {
  ibv_qp_init_attr attributes = init();
  ibv_qp* const qp = ibv_create_qp(pd, &attributes);
  ASSERT_NE(qp, nullptr);
  const auto vendor_id = static_cast<uint32_t>(limits().vendor_id);
  ibv_ece asked{vendor_id, 0x11, 0};
  EXPECT_EQ(ibv_set_ece(qp, &asked), 0);
  ibv_ece got{1, 1, 1};
  EXPECT_EQ(ibv_query_ece(qp, &got), 0);
  EXPECT_EQ(got.vendor_id, vendor_id);
  EXPECT_EQ(got.options, 0U);
  EXPECT_EQ(got.comp_mask, 0U);
  asked.comp_mask = 1;
  EXPECT_EQ(ibv_set_ece(qp, &asked), EINVAL);
  asked = {vendor_id + 1, 0, 0};
  EXPECT_EQ(ibv_set_ece(qp, &asked), EINVAL) << "another vendor's";
  asked = {0, 0, 0};
  EXPECT_EQ(ibv_set_ece(qp, &asked), EOPNOTSUPP) << "no vendor's";
  EXPECT_EQ(ibv_query_ece(qp, nullptr), EINVAL);
  EXPECT_EQ(ibv_set_ece(qp, nullptr), EINVAL);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_query_ece(qp, &got), EINVAL) << "of a QP that is gone";
  EXPECT_EQ(ibv_set_ece(qp, &asked), EINVAL);
}

TEST_F(QueuePairTest, CqsAreRequiredAndOfThisContext) {
  ibv_qp_init_attr attributes = init();
  attributes.send_cq = nullptr;
  EXPECT_EQ(error_of(attributes), EINVAL);
  ibv_context* const other = open("mem1");
  attributes.send_cq = ibv_create_cq(other, 4, nullptr, nullptr, 0);
  EXPECT_EQ(error_of(attributes), EINVAL);
  EXPECT_EQ(ibv_destroy_cq(attributes.send_cq), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
}

TEST_F(QueuePairTest, WhatAQpUsesIsBusy) {
  ibv_qp_init_attr attributes = init();
  ibv_qp* const qp = ibv_create_qp(pd, &attributes);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_cq(cq), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST(QpStates, EachRequiredAttributeIsRequired) {
  const End a("mem0");
  const End b("mem1");
  ASSERT_EQ(a.to_init(), 0);
  ibv_qp_attr attr = End::rtr_attributes(b.gid(), b.qp->qp_num);
  for (const int bit : {IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_DEST_QPN, IBV_QP_RQ_PSN, IBV_QP_MAX_DEST_RD_ATOMIC,
                        IBV_QP_MIN_RNR_TIMER})
    EXPECT_EQ(ibv_modify_qp(a.qp, &attr, End::kRtrMask & ~bit), EINVAL) << bit;
  EXPECT_EQ(ibv_modify_qp(a.qp, &attr, End::kRtrMask | IBV_QP_QKEY), EINVAL) << "not allowed for RC";
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(a.qp, &now, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(now.qp_state, IBV_QPS_INIT) << "a refused call changes nothing";
  EXPECT_EQ(ibv_modify_qp(a.qp, &attr, End::kRtrMask), 0);
}

TEST(QpStates, ValuesAreHeldToTheirLimits) {
  const End a("mem0");
  const End b("mem1");
  ASSERT_EQ(a.to_init(), 0);
  const ibv_qp_attr good = End::rtr_attributes(b.gid(), b.qp->qp_num);
  const auto error_with = [&](auto change) {
    ibv_qp_attr attr = good;
    change(attr);
    return ibv_modify_qp(a.qp, &attr, End::kRtrMask);
  };
  EXPECT_EQ(error_with([](auto& x) { x.path_mtu = IBV_MTU_4096; }), EINVAL) << "the port carries 2048";
  EXPECT_EQ(error_with([](auto& x) { x.path_mtu = static_cast<ibv_mtu>(0); }), EINVAL);
  EXPECT_EQ(error_with([](auto& x) { x.dest_qp_num = 1U << 24; }), EINVAL);
  EXPECT_EQ(error_with([](auto& x) { x.max_dest_rd_atomic = 129; }), EINVAL);
  EXPECT_EQ(error_with([](auto& x) { x.min_rnr_timer = 32; }), EINVAL);
  EXPECT_EQ(error_with([](auto& x) { x.ah_attr.is_global = 0; }), EINVAL) << "RoCE needs the GRH";
  EXPECT_EQ(error_with([](auto& x) { x.ah_attr.port_num = 2; }), EINVAL);
  EXPECT_EQ(error_with([](auto& x) { x.ah_attr.grh.sgid_index = 1; }), EINVAL) << "an empty slot";
  EXPECT_EQ(error_with([](auto& x) { x.ah_attr.grh.dgid = {}; }), EINVAL);
  EXPECT_EQ(error_with([](auto& x) { x.ah_attr.grh.dgid.raw[0] = 0x20; }), EINVAL)
      << "IPv6 from an IPv4 address";
  faults().neighbours_silent = true;
  EXPECT_EQ(error_with([](auto&) {}), EHOSTUNREACH);
  faults().neighbours_silent = false;
  EXPECT_EQ(error_with([](auto&) {}), 0);
}

TEST(QpStates, QueryGivesBackWhatModifySet) {
  const End a("mem0");
  const End b("mem1");
  connect(a, b);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(a.qp, &attr, 0, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.cur_qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attr.dest_qp_num, b.qp->qp_num);
  EXPECT_EQ(attr.sq_psn, 0xfffffeU);
  EXPECT_EQ(attr.timeout, 14);
  EXPECT_EQ(attr.retry_cnt, 7);
  EXPECT_EQ(attr.max_rd_atomic, 4);
  EXPECT_EQ(attr.qp_access_flags, static_cast<unsigned>(kAllRights));
  const ibv_gid peer = b.gid();
  EXPECT_EQ(std::memcmp(&attr.ah_attr.grh.dgid, &peer, sizeof peer), 0);

  attr.cur_qp_state = IBV_QPS_INIT;
  EXPECT_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL) << "it is in RTS";
  attr.qp_state = IBV_QPS_UNKNOWN;
  EXPECT_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), EINVAL);
  attr.qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_ALT_PATH), EOPNOTSUPP);
  EXPECT_EQ(ibv_modify_qp(a.qp, &attr, 1 << 27), EINVAL);
}

TEST(QpStates, ResetGivesAQpThatCanBeUsedAgain) {
  const End a("mem0");
  const End b("mem1");
  connect(a, b);
  ibv_qp_attr reset{};
  ASSERT_EQ(ibv_modify_qp(a.qp, &reset, IBV_QP_STATE), 0);
  ASSERT_EQ(ibv_modify_qp(b.qp, &reset, IBV_QP_STATE), 0);
  ibv_sge none{};
  ibv_recv_wr receive{1, nullptr, &none, 0};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(b.qp, &receive, &bad), EINVAL);
  connect(a, b);
  EXPECT_EQ(b.post_receive(1, {}), 0);
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  EXPECT_EQ(a.post_send(send), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion(b, a).status, IBV_WC_SUCCESS);
}

TEST(AddressHandles, AreCheckedAndHoldTheirDomain) {
  const End a("mem0");
  const End b("mem1");
  ibv_ah_attr attr = End::rtr_attributes(b.gid(), 0).ah_attr;
  ibv_ah* const ah = ibv_create_ah(a.pd, &attr);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ah->pd, a.pd);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  const auto error_with = [&](auto change) {
    ibv_ah_attr changed = attr;
    change(changed);
    errno = 0;
    ibv_ah* const made = ibv_create_ah(a.pd, &changed);
    return made == nullptr ? errno : ibv_destroy_ah(made);
  };
  EXPECT_EQ(error_with([](auto& x) { x.is_global = 0; }), EINVAL);
  EXPECT_EQ(error_with([](auto& x) { x.grh.sgid_index = 3; }), EINVAL);
  EXPECT_EQ(error_with([](auto& x) { x.grh.dgid.raw[12] = 239; }), 0) << "multicast";
  EXPECT_EQ(error_with([](auto& x) { x.grh.dgid.raw[15] = 9; }), EHOSTUNREACH);
  EXPECT_EQ(error_with([](auto& x) { x.grh.dgid.raw[0] = 0x20; }), EINVAL)
      << "an IPv6 host, from an IPv4 GID";
}

TEST(AddressHandles, ComeFromAReceivedHeader) {
  const End a("mem0");
  const End b("mem1");
  ibv_grh grh{};
  const std::array<uint8_t, 20> ipv4{0x45, 0x12, 0,   60, 0, 0, 0x40, 0,  33, 17,
                                     0,    0,    198, 18, 0, 2, 198,  18, 0,  1};
  std::memcpy(reinterpret_cast<uint8_t*>(&grh) + 20, ipv4.data(), ipv4.size());
  ibv_wc wc{};
  wc.wc_flags = IBV_WC_GRH;
  ibv_ah_attr attr{};
  ASSERT_EQ(ibv_init_ah_from_wc(a.context, 1, &wc, &grh, &attr), 0);
  const ibv_gid peer = b.gid();
  EXPECT_EQ(std::memcmp(&attr.grh.dgid, &peer, sizeof peer), 0);
  EXPECT_EQ(attr.is_global, 1);
  EXPECT_EQ(attr.grh.sgid_index, 0);
  EXPECT_EQ(attr.grh.traffic_class, 0x12);
  EXPECT_EQ(attr.grh.hop_limit, 33);
  ibv_ah* const ah = ibv_create_ah_from_wc(a.pd, &wc, &grh, 1);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_init_ah_from_wc(b.context, 1, &wc, &grh, &attr), -1) << "not addressed to this device";
  grh = {};
  EXPECT_EQ(ibv_init_ah_from_wc(a.context, 1, &wc, &grh, &attr), -1) << "no IP version";
}

}  // namespace

}  // namespace faultline::verbs::test::queue_pair_test
