// SPDX-License-Identifier: BSD-3-Clause
// Each allocation of a create call fails once (CVE-2022-50671, -50885, -50543, CVE-2025-38024,
// CVE-2026-45852): the call returns NULL with ENOMEM, and nothing remains.
#include <cstdlib>
#include <functional>
#include <new>

#include <fcntl.h>

#include "tests/unit/verbs/fixture.hpp"

namespace {

thread_local int allocations_until_failure = 0;  ///< 0: none fails
std::atomic<int64_t> outstanding{0};

void* allocate(size_t bytes, size_t alignment) {
  if (allocations_until_failure != 0 && --allocations_until_failure == 0) return nullptr;
  const size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded);
  if (memory != nullptr) ++outstanding;
  return memory;
}

void* allocate_or_throw(size_t bytes, size_t alignment) {
  void* const memory = allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void deallocate(void* memory) {
  if (memory != nullptr) --outstanding;
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) {
  return allocate_or_throw(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new[](size_t bytes) {
  return allocate_or_throw(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new[](size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t& /*tag*/) noexcept {
  return allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment, const std::nothrow_t& /*tag*/) noexcept {
  return allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  deallocate(memory);
}
void operator delete[](void* memory) noexcept {
  deallocate(memory);
}
void operator delete(void* memory, size_t /*bytes*/) noexcept {
  deallocate(memory);
}
void operator delete[](void* memory, size_t /*bytes*/) noexcept {
  deallocate(memory);
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  deallocate(memory);
}
void operator delete[](void* memory, std::align_val_t /*alignment*/) noexcept {
  deallocate(memory);
}
void operator delete(void* memory, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  deallocate(memory);
}
void operator delete[](void* memory, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  deallocate(memory);
}

namespace faultline::verbs::test::allocation_test {

namespace {

/// Fails each allocation of `create` in turn until it succeeds. Returns the number of its allocations.
int fail_each_allocation(const std::function<bool()>& create, const std::function<void()>& destroy) {
  constexpr int kMany = 1000;
  for (int nth = 1; nth < kMany; ++nth) {
    SCOPED_TRACE(nth);
    errno = 0;
    allocations_until_failure = nth;
    const bool created = create();
    const bool failed_one = allocations_until_failure == 0;
    allocations_until_failure = 0;
    if (created) {
      destroy();
      if (!failed_one) return nth - 1;  // failing an optional allocation is no error
    } else {
      EXPECT_TRUE(failed_one);
      EXPECT_EQ(errno, ENOMEM);
    }
  }
  ADD_FAILURE() << "never created";
  return 0;
}

/// The second pass finds tables that only grow at the size that the first pass left.
void expect_nothing_left(const std::function<bool()>& create, const std::function<void()>& destroy) {
  EXPECT_GT(fail_each_allocation(create, destroy), 0) << "a create that allocates nothing tests nothing";
  const int64_t before = outstanding;
  EXPECT_GT(fail_each_allocation(create, destroy), 0);
  EXPECT_EQ(outstanding, before);
}

TEST(NoMemory, OpenDevice) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  ASSERT_GT(count, 0);
  ibv_context* context = nullptr;
  expect_nothing_left([&] { return (context = ibv_open_device(list[0])) != nullptr; },
                      [&] { EXPECT_EQ(ibv_close_device(context), 0); });
  ibv_free_device_list(list);
}

TEST(NoMemory, AllocPd) {
  const End a("mem0");
  ibv_pd* pd = nullptr;
  expect_nothing_left([&] { return (pd = ibv_alloc_pd(a.context)) != nullptr; },
                      [&] { EXPECT_EQ(ibv_dealloc_pd(pd), 0); });
}

TEST(NoMemory, DeviceMemory) {
  const End a("mem0");
  ibv_device_attr_ex device{};
  ASSERT_EQ(ibv_query_device_ex(a.context, nullptr, &device), 0);
  ibv_alloc_dm_attr attributes{device.max_dm_size, 0, 0};
  ibv_dm* dm = nullptr;
  expect_nothing_left([&] { return (dm = ibv_alloc_dm(a.context, &attributes)) != nullptr; },
                      [&] { EXPECT_EQ(ibv_free_dm(dm), 0); });
  dm = ibv_alloc_dm(a.context, &attributes);
  ASSERT_NE(dm, nullptr) << "no failed one keeps any of it";
  ibv_mr* mr = nullptr;
  expect_nothing_left(
      [&] { return (mr = ibv_reg_dm_mr(a.pd, dm, 0, 4096, IBV_ACCESS_ZERO_BASED)) != nullptr; },
      [&] { EXPECT_EQ(ibv_dereg_mr(mr), 0); });
  EXPECT_EQ(ibv_free_dm(dm), 0) << "no failed region holds it";
}

TEST(NoMemory, CreateCq) {
  const End a("mem0");
  ibv_cq* cq = nullptr;
  expect_nothing_left([&] { return (cq = ibv_create_cq(a.context, 64, nullptr, nullptr, 0)) != nullptr; },
                      [&] { EXPECT_EQ(ibv_destroy_cq(cq), 0); });
}

TEST(NoMemory, CreateCqWithAChannel) {
  const End a("mem0");
  ibv_comp_channel* channel = nullptr;
  expect_nothing_left([&] { return (channel = ibv_create_comp_channel(a.context)) != nullptr; },
                      [&] { EXPECT_EQ(ibv_destroy_comp_channel(channel), 0); });
  channel = ibv_create_comp_channel(a.context);
  ibv_cq_ex* cq = nullptr;
  expect_nothing_left(
      [&] {
        ibv_cq_init_attr_ex init{};
        init.cqe = 64;
        init.channel = channel;
        return (cq = ibv_create_cq_ex(a.context, &init)) != nullptr;
      },
      [&] { EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0); });
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0) << "no failed create holds its channel";
}

TEST(NoMemory, ResizeCqLeavesTheOldRing) {
  const End a("mem0");
  ibv_cq* const cq = ibv_create_cq(a.context, 16, nullptr, nullptr, 0);
  allocations_until_failure = 1;
  EXPECT_EQ(ibv_resize_cq(cq, 64), ENOMEM);
  allocations_until_failure = 0;
  EXPECT_EQ(cq->cqe, 16);
  EXPECT_EQ(ibv_resize_cq(cq, 64), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

class QpsWithoutMemory : public ::testing::TestWithParam<ibv_qp_type> {};

TEST_P(QpsWithoutMemory, CreateQp) {
  const End a("mem0");
  ibv_pd* const pd = ibv_alloc_pd(a.context);
  ibv_cq* const cq = ibv_create_cq(a.context, 16, nullptr, nullptr, 0);
  ibv_srq_init_attr srq_init{nullptr, {8, 1, 0}};
  ibv_srq* const srq = ibv_create_srq(pd, &srq_init);
  ibv_xrcd_init_attr xrcd_init{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
  ibv_xrcd* const xrcd = ibv_open_xrcd(a.context, &xrcd_init);
  const bool is_target = GetParam() == IBV_QPT_XRC_RECV;
  const bool shares = GetParam() == IBV_QPT_RC;
  ibv_qp* qp = nullptr;
  expect_nothing_left(
      [&] {
        ibv_qp_init_attr_ex init{};
        init.qp_type = GetParam();
        init.send_cq = init.recv_cq = cq;
        init.srq = shares ? srq : nullptr;
        init.pd = pd;
        init.xrcd = xrcd;
        init.cap = {16, 16, 2, 2, 64};
        init.comp_mask =
            is_target ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        return (qp = ibv_create_qp_ex(a.context, &init)) != nullptr;
      },
      [&] { EXPECT_EQ(ibv_destroy_qp(qp), 0); });
  EXPECT_EQ(ibv_destroy_srq(srq), 0) << "no failed create holds its SRQ";
  EXPECT_EQ(ibv_destroy_cq(cq), 0) << "nor its CQ";
  EXPECT_EQ(ibv_dealloc_pd(pd), 0) << "nor its domain";
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0) << "of either kind";
}

INSTANTIATE_TEST_SUITE_P(Types, QpsWithoutMemory,
                         ::testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND,
                                           IBV_QPT_XRC_RECV),
                         [](const auto& type) { return "Type" + std::to_string(type.param); });

TEST(NoMemory, OpenXrcdAndQp) {
  const End a("mem0");
  ibv_xrcd_init_attr init{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
  ibv_xrcd* xrcd = nullptr;
  expect_nothing_left([&] { return (xrcd = ibv_open_xrcd(a.context, &init)) != nullptr; },
                      [&] { EXPECT_EQ(ibv_close_xrcd(xrcd), 0); });
  xrcd = ibv_open_xrcd(a.context, &init);
  ibv_qp_init_attr_ex wanted{};
  wanted.qp_type = IBV_QPT_XRC_RECV;
  wanted.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  wanted.xrcd = xrcd;
  ibv_qp* const target = ibv_create_qp_ex(a.context, &wanted);
  ASSERT_NE(target, nullptr);
  ibv_qp_open_attr attr{IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE, target->qp_num,
                        xrcd, nullptr, IBV_QPT_XRC_RECV};
  ibv_qp* opened = nullptr;
  expect_nothing_left([&] { return (opened = ibv_open_qp(a.context, &attr)) != nullptr; },
                      [&] { EXPECT_EQ(ibv_destroy_qp(opened), 0); });
  EXPECT_EQ(ibv_destroy_qp(target), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

TEST(NoMemory, CreateSrq) {
  const End a("mem0");
  ibv_pd* const pd = ibv_alloc_pd(a.context);
  ibv_srq* srq = nullptr;
  expect_nothing_left(
      [&] {
        ibv_srq_init_attr init{nullptr, {16, 2, 0}};
        return (srq = ibv_create_srq(pd, &init)) != nullptr;
      },
      [&] { EXPECT_EQ(ibv_destroy_srq(srq), 0); });
  ibv_srq_init_attr init{nullptr, {16, 2, 0}};
  srq = ibv_create_srq(pd, &init);
  ibv_srq_attr attr{};
  attr.max_wr = 64;
  allocations_until_failure = 1;
  EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), ENOMEM);
  allocations_until_failure = 0;
  EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST(NoMemory, AllocMw) {
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    const End a("mem0");
    ibv_pd* const pd = ibv_alloc_pd(a.context);
    ibv_mw* mw = nullptr;
    expect_nothing_left([&] { return (mw = ibv_alloc_mw(pd, type)) != nullptr; },
                        [&] { EXPECT_EQ(ibv_dealloc_mw(mw), 0); });
    EXPECT_EQ(ibv_dealloc_pd(pd), 0) << "no failed one holds its domain";
  }
}

TEST(NoMemory, AttachMulticast) {
  EndOptions ud;
  ud.type = IBV_QPT_UD;
  const End a("mem0", ud);
  ibv_gid group{};
  group.raw[0] = 0xff;
  group.raw[1] = 0x02;
  const auto attach = [&] {
    const int error = ibv_attach_mcast(a.qp, &group, 0);
    errno = error;
    return error == 0;
  };
  EXPECT_GT(fail_each_allocation(attach, [&] { EXPECT_EQ(ibv_detach_mcast(a.qp, &group, 0), 0); }), 0);
}

TEST(NoMemory, CreateAh) {
  const End a("mem0");
  ibv_pd* const pd = ibv_alloc_pd(a.context);
  ibv_ah_attr attr = End::rtr_attributes(a.gid(), 0).ah_attr;
  ibv_ah* ah = nullptr;
  expect_nothing_left([&] { return (ah = ibv_create_ah(pd, &attr)) != nullptr; },
                      [&] { EXPECT_EQ(ibv_destroy_ah(ah), 0); });
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST(NoMemory, RegMr) {
  for (const int memory : {0, static_cast<int>(IBV_ACCESS_ON_DEMAND)}) {
    SCOPED_TRACE(memory);
    const End a("mem0");
    const Pages pages(16384);
    ibv_pd* const pd = ibv_alloc_pd(a.context);
    ibv_mr* mr = nullptr;
    expect_nothing_left(
        [&] { return (mr = ibv_reg_mr(pd, pages.data(), pages.size(), kAllRights | memory)) != nullptr; },
        [&] { EXPECT_EQ(ibv_dereg_mr(mr), 0); });
    EXPECT_EQ(ibv_dealloc_pd(pd), 0) << "no failed registration holds its domain";
  }
}

TEST(NoMemory, DeregMrNeedsNone) {
  const End a("mem0");
  const Pages pages(12288);
  ibv_pd* const pd = ibv_alloc_pd(a.context);
  for (int nth = 1; nth < 8; ++nth) {
    SCOPED_TRACE(nth);
    // Deregistering the middle one of three pages splits a range in the counts of the monitor.
    ibv_mr* const whole = ibv_reg_mr(pd, pages.data(), pages.size(), kAllRights);
    ibv_mr* const middle = ibv_reg_mr(pd, pages.data() + 4096, 4096, kAllRights);
    ASSERT_NE(whole, nullptr);
    ASSERT_NE(middle, nullptr);
    allocations_until_failure = nth;
    EXPECT_EQ(ibv_dereg_mr(middle), 0);
    allocations_until_failure = nth;
    EXPECT_EQ(ibv_dereg_mr(whole), 0);
    allocations_until_failure = 0;
  }
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST(NoMemory, ReregMrLeavesTheOldRegion) {
  const End a("mem0");
  const Pages pages(16384);
  ibv_pd* const pd = ibv_alloc_pd(a.context);
  ibv_mr* const mr = ibv_reg_mr(pd, pages.data(), 8192, kAllRights);
  ASSERT_NE(mr, nullptr);
  // The key and the counts are checked. Bytes are not, since a deregistration without memory leaves its range
  // watched.
  const int made = fail_each_allocation(
      [&] {
        const uint32_t key = mr->lkey;
        const int result =
            ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, pages.data() + 8192, 8192, 0);
        if (result != 0) {
          EXPECT_EQ(mr->lkey, key);
        }
        return result == 0;
      },
      [] {});
  EXPECT_GT(made, 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

}  // namespace

}  // namespace faultline::verbs::test::allocation_test
