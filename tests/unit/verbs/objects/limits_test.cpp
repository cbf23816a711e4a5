// SPDX-License-Identifier: BSD-3-Clause
// A device enforces exactly its reported limits: the limit can be reached, one more is refused.
#include <algorithm>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::limits_test {

namespace {

class Limits : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ibv_query_device(context, &device), 0);
    ASSERT_EQ(ibv_query_port(context, 1, &port), 0);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  int qp_error(ibv_qp_cap cap) const {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = cap;
    errno = 0;
    ibv_qp* const qp = ibv_create_qp(pd, &init);
    if (qp == nullptr) return errno;
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    return 0;
  }
  int srq_error(uint32_t wrs, uint32_t sges) const {
    ibv_srq_init_attr init{nullptr, {wrs, sges, 0}};
    errno = 0;
    ibv_srq* const srq = ibv_create_srq(pd, &init);
    if (srq == nullptr) return errno;
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    return 0;
  }
  int cq_error(int entries) const {
    errno = 0;
    ibv_cq* const made = ibv_create_cq(context, entries, nullptr, nullptr, 0);
    if (made == nullptr) return errno;
    EXPECT_EQ(ibv_destroy_cq(made), 0);
    return 0;
  }
  ibv_context* const context = open("mem0");
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_cq* const cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  ibv_device_attr device{};
  ibv_port_attr port{};
};

TEST_F(Limits, OfOneObject) {
  const auto wrs = static_cast<uint32_t>(device.max_qp_wr);
  const auto sges = static_cast<uint32_t>(device.max_sge);
  EXPECT_EQ(qp_error({wrs, wrs, sges, sges, 0}), 0);
  EXPECT_EQ(qp_error({wrs + 1, 1, 1, 1, 0}), EINVAL);
  EXPECT_EQ(qp_error({1, wrs + 1, 1, 1, 0}), EINVAL);
  EXPECT_EQ(qp_error({1, 1, sges + 1, 1, 0}), EINVAL);
  EXPECT_EQ(qp_error({1, 1, 1, sges + 1, 0}), EINVAL);
  const auto srq_wrs = static_cast<uint32_t>(device.max_srq_wr);
  const auto srq_sges = static_cast<uint32_t>(device.max_srq_sge);
  EXPECT_EQ(srq_error(srq_wrs, srq_sges), 0);
  EXPECT_EQ(srq_error(srq_wrs + 1, 1), EINVAL);
  EXPECT_EQ(srq_error(1, srq_sges + 1), EINVAL);
  EXPECT_EQ(cq_error(device.max_cqe), 0);
  EXPECT_EQ(cq_error(device.max_cqe + 1), EINVAL);
  EXPECT_EQ(ibv_reg_mr(pd, reinterpret_cast<void*>(4096), device.max_mr_size + 1, int{IBV_ACCESS_ON_DEMAND}),
            nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Limits, OfAConnection) {
  const End end("mem0");
  ASSERT_EQ(end.to_init(), 0);
  ibv_qp_attr attr = End::rtr_attributes(end.gid(), 5);
  attr.max_dest_rd_atomic = static_cast<uint8_t>(device.max_qp_rd_atom + 1);
  EXPECT_EQ(ibv_modify_qp(end.qp, &attr, End::kRtrMask), EINVAL);
  attr.max_dest_rd_atomic = static_cast<uint8_t>(device.max_qp_rd_atom);
  attr.path_mtu = static_cast<ibv_mtu>(port.max_mtu + 1);
  EXPECT_EQ(ibv_modify_qp(end.qp, &attr, End::kRtrMask), EINVAL);
  attr.path_mtu = port.max_mtu;
  EXPECT_EQ(ibv_modify_qp(end.qp, &attr, End::kRtrMask), 0);
  attr.qp_state = IBV_QPS_RTS;
  attr.max_rd_atomic = static_cast<uint8_t>(device.max_qp_init_rd_atom + 1);
  constexpr int kMask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_MAX_QP_RD_ATOMIC;
  EXPECT_EQ(ibv_modify_qp(end.qp, &attr, kMask), EINVAL);
  attr.max_rd_atomic = static_cast<uint8_t>(device.max_qp_init_rd_atom);
  EXPECT_EQ(ibv_modify_qp(end.qp, &attr, kMask), 0);
}

TEST_F(Limits, OfTheDevicesObjects) {
  std::vector<ibv_pd*> pds;
  for (int i = 1; i < device.max_pd; ++i) pds.push_back(ibv_alloc_pd(context));
  EXPECT_EQ(std::count(pds.begin(), pds.end(), nullptr), 0);
  EXPECT_EQ(ibv_alloc_pd(context), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  for (ibv_pd* const one : pds) EXPECT_EQ(ibv_dealloc_pd(one), 0);

  std::vector<ibv_cq*> cqs;
  for (int i = 1; i < device.max_cq; ++i) cqs.push_back(ibv_create_cq(context, 1, nullptr, nullptr, 0));
  EXPECT_EQ(std::count(cqs.begin(), cqs.end(), nullptr), 0);
  EXPECT_EQ(ibv_create_cq(context, 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  for (ibv_cq* const one : cqs) EXPECT_EQ(ibv_destroy_cq(one), 0);

  ibv_gid group{};
  group.raw[0] = 0xff;
  group.raw[1] = 0x0e;
  std::vector<ibv_qp*> qps;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_UD;
  for (int i = 0; i <= device.max_mcast_qp_attach; ++i) {
    init.cap = {1, 1, 1, 1, 0};
    qps.push_back(ibv_create_qp(pd, &init));
    ASSERT_NE(qps.back(), nullptr);
    EXPECT_EQ(ibv_attach_mcast(qps.back(), &group, 0), i == device.max_mcast_qp_attach ? ENOMEM : 0);
  }
  for (ibv_qp* const one : qps) {
    if (one != qps.back()) {
      EXPECT_EQ(ibv_detach_mcast(one, &group, 0), 0);
    }
    EXPECT_EQ(ibv_destroy_qp(one), 0);
  }
}

}  // namespace

}  // namespace faultline::verbs::test::limits_test
