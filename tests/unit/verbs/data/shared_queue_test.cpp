// SPDX-License-Identifier: BSD-3-Clause
// Shared receive queues and XRC: objects, references between them, and errno as in the man pages.
#include <cstdlib>

#include <fcntl.h>
#include <unistd.h>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::shared_queue_test {

namespace {

ibv_srq* make_srq(ibv_pd* pd, uint32_t wrs = 16, uint32_t sges = 2) {
  ibv_srq_init_attr init{nullptr, {wrs, sges, 0}};
  return ibv_create_srq(pd, &init);
}

class SharedQueue : public ::testing::Test {
 protected:
  [[nodiscard]] int create_error(uint32_t wrs, uint32_t sges) const {
    errno = 0;
    ibv_srq* const srq = make_srq(end.pd, wrs, sges);
    return srq == nullptr ? errno : ibv_destroy_srq(srq);
  }
  static int post(ibv_srq* srq, int count, std::vector<ibv_sge> sges = {}) {
    for (int i = 0; i < count; ++i) {
      ibv_recv_wr wr{static_cast<uint64_t>(i), nullptr, sges.data(), static_cast<int>(sges.size())};
      ibv_recv_wr* bad = nullptr;
      const int error = ibv_post_srq_recv(srq, &wr, &bad);
      EXPECT_EQ(bad, error == 0 ? nullptr : &wr);
      if (error != 0) return error;
    }
    return 0;
  }
  [[nodiscard]] ibv_qp_init_attr qp_init(ibv_srq* srq, ibv_qp_type type = IBV_QPT_RC) const {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = end.cq;
    init.srq = srq;
    init.qp_type = type;
    init.cap = {4, 4, 1, 1, 0};
    return init;
  }
  End end{"mem0"};
};

TEST_F(SharedQueue, IsCreatedWithinTheLimits) {
  ibv_device_attr limit{};
  ASSERT_EQ(ibv_query_device(end.context, &limit), 0);
  const auto most = static_cast<uint32_t>(limit.max_srq_wr);
  const auto widest = static_cast<uint32_t>(limit.max_srq_sge);
  EXPECT_EQ(create_error(most, 1), 0);
  EXPECT_EQ(create_error(most + 1, 1), EINVAL);
  EXPECT_EQ(create_error(0, 1), EINVAL);
  EXPECT_EQ(create_error(1, widest), 0);
  EXPECT_EQ(create_error(1, widest + 1), EINVAL);
  ibv_srq_init_attr init{&end, {10, 3, 99}};
  ibv_srq* const srq = ibv_create_srq(end.pd, &init);
  ASSERT_NE(srq, nullptr);
  EXPECT_GE(init.attr.max_wr, 10U);
  EXPECT_GE(init.attr.max_sge, 3U);
  EXPECT_EQ(srq->srq_context, &end);
  EXPECT_EQ(srq->pd, end.pd);
  EXPECT_EQ(ibv_dealloc_pd(end.pd), EBUSY);
  ibv_srq_attr attr{};
  ASSERT_EQ(ibv_query_srq(srq, &attr), 0);
  EXPECT_EQ(attr.max_wr, init.attr.max_wr);
  EXPECT_EQ(attr.max_sge, init.attr.max_sge);
  EXPECT_EQ(attr.srq_limit, 0U) << "irrelevant at creation: armed by modify";
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(SharedQueue, TakesReceivesUntilItIsFull) {
  ibv_srq* const srq = make_srq(end.pd, 8, 1);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(post(srq, 8), 0);
  EXPECT_EQ(post(srq, 1), ENOMEM);
  ibv_srq* const narrow = make_srq(end.pd, 8, 1);
  EXPECT_EQ(post(narrow, 1, {ibv_sge{}, ibv_sge{}}), EINVAL) << "two elements, one fits";
  EXPECT_EQ(ibv_destroy_srq(narrow), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0) << "with receives in it";
}

TEST_F(SharedQueue, IsHeldByItsQps) {
  ibv_srq* const srq = make_srq(end.pd);
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UD}) {
    ibv_qp_init_attr init = qp_init(srq, type);
    init.cap.max_recv_wr = UINT32_MAX;  // ignored, as specified in ibv_create_qp(3)
    ibv_qp* const qp = ibv_create_qp(end.pd, &init);
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(qp->srq, srq);
    EXPECT_EQ(init.cap.max_recv_wr, 0U);
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(qp, &wr, &bad), EINVAL) << "its receives are the SRQ's";
    EXPECT_EQ(bad, &wr);
    EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
    ibv_qp_attr attr{};
    ibv_qp_init_attr queried{};
    EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_CAP, &queried), 0);
    EXPECT_EQ(queried.srq, srq);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
  }
  ibv_qp_init_attr init = qp_init(srq, IBV_QPT_UC);
  errno = 0;
  EXPECT_EQ(ibv_create_qp(end.pd, &init), nullptr) << "ibv_create_qp(3): RC and UD alone";
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(SharedQueue, ItsLimitIsChecked) {
  ibv_srq* const srq = make_srq(end.pd, 16);
  ibv_srq_attr attr{};
  attr.srq_limit = 5;
  EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
  ASSERT_EQ(ibv_query_srq(srq, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 5U);
  attr.srq_limit = attr.max_wr + 1;
  EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
  EXPECT_EQ(ibv_modify_srq(srq, &attr, 1 << 5), EINVAL);
  EXPECT_EQ(ibv_modify_srq(srq, &attr, 0), 0) << "nothing to change";
  attr.max_wr = 1 << 30;
  EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
  attr.max_wr = 0;
  EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(SharedQueue, OnlyAnXrcOneHasANumber) {
  ibv_srq* const srq = make_srq(end.pd);
  uint32_t number = 0;
  EXPECT_EQ(ibv_get_srq_num(srq, &number), EINVAL);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  ibv_srq_init_attr_ex init{};
  init.attr = {4, 1, 0};
  init.pd = end.pd;
  init.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
  init.srq_type = IBV_SRQT_BASIC;
  ibv_srq* const plain = ibv_create_srq_ex(end.context, &init);
  ASSERT_NE(plain, nullptr) << "the header makes it ibv_create_srq";
  EXPECT_EQ(ibv_destroy_srq(plain), 0);
  init.srq_type = IBV_SRQT_TM;
  errno = 0;
  EXPECT_EQ(ibv_create_srq_ex(end.context, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

class Xrc : public ::testing::Test {
 protected:
  static ibv_xrcd* open_domain(ibv_context* context, int fd, int flags) {
    ibv_xrcd_init_attr init{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, fd, flags};
    errno = 0;
    return ibv_open_xrcd(context, &init);
  }
  [[nodiscard]] ibv_srq* make_xrc_srq(ibv_xrcd* xrcd) const {
    ibv_srq_init_attr_ex init{};
    init.attr = {8, 1, 0};
    init.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    init.srq_type = IBV_SRQT_XRC;
    init.pd = end.pd;
    init.xrcd = xrcd;
    init.cq = end.cq;
    return ibv_create_srq_ex(end.context, &init);
  }
  [[nodiscard]] ibv_qp* make_target(ibv_xrcd* xrcd) const {
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_XRC_RECV;
    init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    init.xrcd = xrcd;
    return ibv_create_qp_ex(end.context, &init);
  }
  const End end{"mem0"};
};

TEST_F(Xrc, DomainsOfOneInodeAreOne) {
  std::array<char, 32> name{"/tmp/faultline-xrc-XXXXXX"};
  const int fd = mkstemp(name.data());
  ASSERT_GE(fd, 0);
  ASSERT_EQ(unlink(name.data()), 0);
  EXPECT_EQ(open_domain(end.context, fd, 0), nullptr);
  EXPECT_EQ(errno, EAGAIN) << "nobody made it yet";
  ibv_xrcd* const first = open_domain(end.context, fd, O_CREAT);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(open_domain(end.context, fd, O_CREAT | O_EXCL), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_context* const other = open("mem0");
  ibv_xrcd* const second = open_domain(other, fd, 0);
  ASSERT_NE(second, nullptr) << "it is there, for every context of the device";
  // A target created through one context is found through the other.
  ibv_qp* const target = make_target(first);
  ASSERT_NE(target, nullptr);
  ibv_qp_open_attr open_attr{IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
                             target->qp_num, second, nullptr, IBV_QPT_XRC_RECV};
  ibv_qp* const again = ibv_open_qp(other, &open_attr);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->qp_num, target->qp_num);
  EXPECT_EQ(ibv_close_xrcd(first), EBUSY);
  EXPECT_EQ(ibv_close_xrcd(second), EBUSY) << "an opened QP holds it too";
  EXPECT_EQ(ibv_destroy_qp(target), 0);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(again, &attr, IBV_QP_STATE, &init), 0) << "the QP lives while one handle does";
  EXPECT_EQ(attr.qp_state, IBV_QPS_RESET);
  EXPECT_EQ(ibv_close_xrcd(first), 0);
  EXPECT_EQ(ibv_destroy_qp(again), 0);
  errno = 0;
  EXPECT_EQ(ibv_open_qp(other, &open_attr), nullptr);
  EXPECT_EQ(errno, EINVAL) << "gone";
  EXPECT_EQ(ibv_close_xrcd(second), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
  EXPECT_EQ(open_domain(end.context, fd, 0), nullptr) << "the last one took it along";
  close(fd);
}

TEST_F(Xrc, DomainsWithoutAnInodeAreApart) {
  EXPECT_EQ(open_domain(end.context, -1, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_xrcd* const first = open_domain(end.context, -1, O_CREAT);
  ibv_xrcd* const second = open_domain(end.context, -1, O_CREAT);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  ibv_qp* const target = make_target(first);
  ASSERT_NE(target, nullptr);
  ibv_qp_open_attr attr{IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE, target->qp_num,
                        second, nullptr, IBV_QPT_XRC_RECV};
  EXPECT_EQ(ibv_open_qp(end.context, &attr), nullptr) << "of another domain";
  attr.xrcd = first;
  attr.qp_type = IBV_QPT_RC;
  EXPECT_EQ(ibv_open_qp(end.context, &attr), nullptr) << "not a type that is shared";
  EXPECT_EQ(ibv_destroy_qp(target), 0);
  EXPECT_EQ(open_domain(end.context, 9999, O_CREAT), nullptr);
  EXPECT_EQ(errno, EBADF);
  ibv_xrcd_init_attr incomplete{IBV_XRCD_INIT_ATTR_FD, -1, O_CREAT};
  EXPECT_EQ(ibv_open_xrcd(end.context, &incomplete), nullptr);
  EXPECT_EQ(ibv_close_xrcd(first), 0);
  EXPECT_EQ(ibv_close_xrcd(second), 0);
}

TEST_F(Xrc, SrqsHaveNumbersOfTheirOwn) {
  ibv_xrcd* const xrcd = open_domain(end.context, -1, O_CREAT);
  ibv_srq* const first = make_xrc_srq(xrcd);
  ibv_srq* const second = make_xrc_srq(xrcd);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  uint32_t a = 0;
  uint32_t b = 0;
  EXPECT_EQ(ibv_get_srq_num(first, &a), 0);
  EXPECT_EQ(ibv_get_srq_num(second, &b), 0);
  EXPECT_NE(a, b);
  EXPECT_NE(a, 0U);
  EXPECT_LT(a, 1U << 24);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = end.cq;
  init.srq = first;
  init.qp_type = IBV_QPT_RC;
  init.cap = {1, 1, 1, 1, 0};
  EXPECT_EQ(ibv_create_qp(end.pd, &init), nullptr) << "messages name it, QPs do not";
  EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(end.cq), EBUSY) << "its receives complete there";
  EXPECT_EQ(ibv_destroy_srq(first), 0);
  EXPECT_EQ(ibv_destroy_srq(second), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

TEST_F(Xrc, AnInitiatorOnlySends) {
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_SEND;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.pd = end.pd;
  init.send_cq = end.cq;
  init.cap = {4, 0, 1, 0, 0};
  ibv_qp* const qp = ibv_create_qp_ex(end.context, &init);
  ASSERT_NE(qp, nullptr);
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(qp, &wr, &bad), EINVAL);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  ibv_xrcd* const xrcd = open_domain(end.context, -1, O_CREAT);
  ibv_qp* const target = make_target(xrcd);
  ASSERT_NE(target, nullptr);
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  ibv_send_wr* bad_send = nullptr;
  EXPECT_EQ(ibv_post_send(target, &send, &bad_send), EINVAL) << "a target only answers";
  EXPECT_EQ(ibv_post_recv(target, &wr, &bad), EINVAL);
  EXPECT_EQ(ibv_destroy_qp(target), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
  errno = 0;
  EXPECT_EQ(make_target(nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace

}  // namespace faultline::verbs::test::shared_queue_test
