// SPDX-License-Identifier: BSD-3-Clause
// Thread domains, parent domains, and objects imported from another context of the process.
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test {

namespace {

ibv_parent_domain_init_attr parent_of(ibv_pd* pd, ibv_td* td = nullptr) {
  ibv_parent_domain_init_attr init{};
  init.pd = pd;
  init.td = td;
  return init;
}

ibv_send_wr write_to(const ibv_mr* remote, uint64_t address, ibv_sge& sge) {
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {address, remote->rkey};
  return wr;
}

class ParentDomain : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  int error_of(ibv_parent_domain_init_attr init) const {
    errno = 0;
    ibv_pd* const made = ibv_alloc_parent_domain(context, &init);
    if (made == nullptr) return errno;
    EXPECT_EQ(ibv_dealloc_pd(made), 0);
    return 0;
  }
  ibv_context* const context = open("mem0");
  ibv_pd* const pd = ibv_alloc_pd(context);
};

TEST_F(ParentDomain, WhatItIsMadeOfIsChecked) {
  EXPECT_EQ(error_of(parent_of(pd)), 0);
  EXPECT_EQ(error_of(parent_of(nullptr)), EINVAL);
  ibv_parent_domain_init_attr init = parent_of(pd);
  init.comp_mask = 1U << 7;
  EXPECT_EQ(error_of(init), EINVAL);
  init.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  EXPECT_EQ(error_of(init), EINVAL) << "no functions";
  ibv_context* const other = open("mem1");
  ibv_pd* const foreign = ibv_alloc_pd(other);
  EXPECT_EQ(error_of(parent_of(foreign)), EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(foreign), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
}

TEST_F(ParentDomain, ItKeepsBothItsDomains) {
  ibv_td_init_attr td_init{};
  ibv_td* const td = ibv_alloc_td(context, &td_init);
  ASSERT_NE(td, nullptr);
  ibv_parent_domain_init_attr init = parent_of(pd, td);
  ibv_pd* const parent = ibv_alloc_parent_domain(context, &init);
  ASSERT_NE(parent, nullptr);
  EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  ibv_cq_init_attr_ex cq_init{};
  cq_init.cqe = 4;
  cq_init.wc_flags = IBV_WC_STANDARD_FLAGS;
  cq_init.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  cq_init.parent_domain = pd;
  EXPECT_EQ(ibv_create_cq_ex(context, &cq_init), nullptr) << "a plain domain";
  EXPECT_EQ(errno, EINVAL);
  cq_init.parent_domain = parent;
  ibv_cq_ex* const cq = ibv_create_cq_ex(context, &cq_init);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
  td_init.comp_mask = 1;
  EXPECT_EQ(ibv_alloc_td(context, &td_init), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

/// A QP on the parent domain, regions and address handles on either.
TEST(ParentDomainData, ItIsInterchangeableWithItsDomain) {
  const Pages from(4096);
  const Pages to(4096);
  End a("mem0");
  End b("mem1");
  ibv_pd* const base = b.pd;
  ibv_parent_domain_init_attr init = parent_of(base);
  ibv_pd* const parent = ibv_alloc_parent_domain(b.context, &init);
  ASSERT_NE(parent, nullptr);
  ASSERT_EQ(ibv_destroy_qp(b.qp), 0);
  b.pd = parent;
  b.make_qp({});
  b.pd = base;
  connect(a, b);
  ibv_mr* const local = a.add_region(from);
  ibv_mr* const on_base = b.add_region(to, kAllRights | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_MW_BIND);
  ibv_mr* const on_parent = ibv_reg_mr(parent, to.data(), to.size(), kAllRights);
  ASSERT_NE(on_parent, nullptr);
  uint8_t seed = 1;
  for (const ibv_mr* const remote : {on_base, on_parent}) {
    from.fill(++seed);
    ibv_sge sge = sge_of(local, 0, 4096);
    ASSERT_EQ(a.post_send(write_to(remote, to.address(), sge)), 0);
    EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(from.data(), to.data(), 4096), 0);
  }
  ibv_mw* const mw = ibv_alloc_mw(base, IBV_MW_TYPE_1);
  ibv_mw_bind bind{};
  bind.send_flags = IBV_SEND_SIGNALED;
  // Local write says nothing of a window, but programs give it.
  bind.bind_info = {on_base, to.address(), 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
  ASSERT_EQ(ibv_bind_mw(b.qp, mw, &bind), 0);
  EXPECT_EQ(completion(b, a).status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dereg_mr(on_parent), 0);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY) << "the QP's";
  ASSERT_EQ(ibv_destroy_qp(b.qp), 0);
  b.qp = nullptr;
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
}

TEST(Import, ADescriptorThatIsNoContextsIsRefused) {
  EXPECT_EQ(ibv_import_device(-1), nullptr);
  EXPECT_EQ(errno, EBADF);
  const int unknown = memfd_create("unknown", 0);
  EXPECT_EQ(ibv_import_device(unknown), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(close(unknown), 0) << "still the caller's";
}

TEST(Import, ItsObjectsAreThoseOfTheOtherContext) {
  const Pages from(4096);
  const Pages to(4096);
  End a("mem0");
  End b("mem1");
  ibv_mr* const local = a.add_region(from);
  ibv_mr* const remote = b.add_region(to);

  ibv_context* const imported = ibv_import_device(dup(b.context->cmd_fd));
  ASSERT_NE(imported, nullptr);
  EXPECT_EQ(ibv_import_pd(imported, 0xffffff), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_pd* const pd = ibv_import_pd(imported, b.pd->handle);
  ASSERT_NE(pd, nullptr);
  EXPECT_EQ(ibv_import_mr(pd, 0xffffff), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_mr* const mr = ibv_import_mr(pd, remote->handle);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->rkey, remote->rkey);
  EXPECT_EQ(mr->length, remote->length);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllRights),
            IBV_REREG_MR_ERR_INPUT);
  ibv_context* const other = open("mem1");
  EXPECT_EQ(ibv_import_pd(other, b.pd->handle), nullptr) << "handles are a descriptor's";

  // A QP of the imported domain takes what comes to the other context's region.
  ibv_cq* const cq = ibv_create_cq(imported, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 0};
  ibv_qp* const own = std::exchange(b.qp, ibv_create_qp(pd, &init));
  ASSERT_NE(b.qp, nullptr);
  connect(a, b);
  from.fill(5);
  ibv_sge sge = sge_of(local, 0, 4096);
  ASSERT_EQ(a.post_send(write_to(mr, to.address(), sge)), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(from.data(), to.data(), 4096), 0);

  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  ibv_unimport_mr(mr);
  ibv_unimport_pd(pd);  // before its QP, as programs do
  EXPECT_EQ(ibv_destroy_qp(b.qp), 0);
  b.qp = own;
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_close_device(imported), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
}

TEST(Import, AnUnimportedDomainHoldsItsBaseNoLongerThanItsObjectsDo) {
  ibv_context* const context = open("mem0");
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_context* const imported = ibv_import_device(dup(context->cmd_fd));
  ibv_pd* const its_pd = ibv_import_pd(imported, pd->handle);
  ibv_mw* const mw = ibv_alloc_mw(its_pd, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  ibv_unimport_pd(its_pd);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY) << "the window's";
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_close_device(imported), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST(Import, ARegionMayBeEndedByEitherHandle) {
  const Pages pages(4096);
  ibv_context* const context = open("mem0");
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_mr* const mr = ibv_reg_mr(pd, pages.data(), pages.size(), kAllRights);
  ASSERT_NE(mr, nullptr);
  ibv_context* const imported = ibv_import_device(dup(context->cmd_fd));
  ibv_pd* const its_pd = ibv_import_pd(imported, pd->handle);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  ibv_mr* const its_mr = ibv_import_mr(its_pd, mr->handle);
  EXPECT_EQ(ibv_dereg_mr(its_mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(its_pd), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0) << "its key went with the other";
  EXPECT_EQ(ibv_close_device(imported), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
}

}  // namespace

}  // namespace faultline::verbs::test
