// SPDX-License-Identifier: BSD-3-Clause
// Thread domains, parent domains, and objects imported from another context of the process.
#include <cstdlib>

#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::domain_test {

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
  init = parent_of(pd);
  init.comp_mask = 1U << 2;  // IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC
  EXPECT_EQ(error_of(init), 0);
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

/// A QP on the parent domain, with regions and address handles on either domain.
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
  // Local write has no meaning for a window, but programs set it.
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

/// The program's allocator for rings; counts its allocations.
struct Arena {
  int blocks = 0;
  int made = 0;
  int refuse_after = 1000;
  bool pass_on = false;
  size_t misaligned_bytes = 0;

  static void* alloc(ibv_pd* /*pd*/, void* context, size_t size, size_t alignment, uint64_t /*type*/) {
    Arena& arena = *static_cast<Arena*>(context);
    if (arena.made == arena.refuse_after) return nullptr;
    ++arena.made;
    if (arena.pass_on) return IBV_ALLOCATOR_USE_DEFAULT;
    ++arena.blocks;
    const size_t rounded = (size + 2 * alignment - 1) / alignment * alignment;
    return static_cast<uint8_t*>(std::aligned_alloc(alignment, rounded)) + arena.misaligned_bytes;
  }
  static void free(ibv_pd* /*pd*/, void* context, void* memory, uint64_t /*type*/) {
    Arena& arena = *static_cast<Arena*>(context);
    --arena.blocks;
    std::free(static_cast<uint8_t*>(memory) - arena.misaligned_bytes);
  }
};

class ProgramsMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    ibv_parent_domain_init_attr init = parent_of(a.pd);
    init.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    init.alloc = Arena::alloc;
    init.free = Arena::free;
    init.pd_context = &arena;
    parent = ibv_alloc_parent_domain(a.context, &init);
    ASSERT_NE(parent, nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_dealloc_pd(parent), 0);
    EXPECT_EQ(arena.blocks, 0);
  }
  ibv_qp* make_qp(ibv_srq* srq = nullptr) const {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = a.cq;
    init.qp_type = IBV_QPT_RC;
    init.srq = srq;
    init.cap = {16, 16, 2, 2, 64};
    return ibv_create_qp(parent, &init);
  }
  ibv_srq* make_srq() const {
    ibv_srq_init_attr init{nullptr, {8, 2, 0}};
    return ibv_create_srq(parent, &init);
  }
  ibv_cq_ex* make_cq() const {
    ibv_cq_init_attr_ex init{};
    init.cqe = 16;
    init.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    init.parent_domain = parent;
    return ibv_create_cq_ex(a.context, &init);
  }
  Arena arena;
  End a{"mem0"};
  ibv_pd* parent = nullptr;
};

TEST_F(ProgramsMemory, HoldsTheRings) {
  ibv_qp* const qp = make_qp();
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(arena.blocks, 2);
  ibv_srq* const srq = make_srq();
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(arena.blocks, 3);
  ibv_cq_ex* const cq = make_cq();
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(arena.blocks, 4);
  EXPECT_EQ(ibv_resize_cq(ibv_cq_ex_to_cq(cq), 64), 0);
  ibv_srq_attr larger{64, 0, 0};
  EXPECT_EQ(ibv_modify_srq(srq, &larger, IBV_SRQ_MAX_WR), 0);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(ProgramsMemory, DataGoesThroughIt) {
  const Pages pages(8192);
  ASSERT_EQ(ibv_destroy_qp(a.qp), 0);
  a.qp = make_qp();
  End b("mem1");
  ibv_mr* const here = a.add_region(pages);
  const Pages there(8192);
  ibv_mr* const remote = b.add_region(there);
  connect(a, b);
  for (uint8_t round = 0; round < 40; ++round) {
    pages.fill(round);
    ibv_sge sge = sge_of(here, 0, 8192);
    ASSERT_EQ(a.post_send(write_to(remote, there.address(), sge)), 0);
    EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(pages.data(), there.data(), 8192), 0);
  }
  ASSERT_EQ(ibv_destroy_qp(a.qp), 0);
  a.qp = nullptr;
}

TEST_F(ProgramsMemory, ThatIsRefusedPassedOnOrUnfitIsTakenAsThat) {
  for (arena.refuse_after = 0; arena.refuse_after < 2; ++arena.refuse_after) {
    arena.made = 0;
    errno = 0;
    EXPECT_EQ(make_qp(), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(arena.blocks, 0);
  }
  arena.refuse_after = arena.made = 0;
  EXPECT_EQ(make_srq(), nullptr);
  EXPECT_EQ(make_cq(), nullptr);
  arena.refuse_after = 1000;
  arena.misaligned_bytes = 1;
  EXPECT_EQ(make_qp(), nullptr);
  EXPECT_EQ(arena.blocks, 0);
  arena.misaligned_bytes = 0;
  arena.pass_on = true;
  ibv_qp* const qp = make_qp();
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(arena.blocks, 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
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

  // A QP of the imported domain receives into the other context's region.
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
  ibv_unimport_pd(pd);  // before its QP is destroyed, as programs do
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

}  // namespace faultline::verbs::test::domain_test
