// SPDX-License-Identifier: BSD-3-Clause
// Protection domains and memory regions: errno as documented in ibv_reg_mr(3), ibv_rereg_mr(3) and
// ibv_advise_mr(3).
#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::memory_test {

namespace {

// Of type int: the header's macro mixes its argument with another enum, to which clang objects.
constexpr int kOnDemand = IBV_ACCESS_ON_DEMAND;
constexpr int kLocalWrite = IBV_ACCESS_LOCAL_WRITE;

class MemoryTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  int error_of(void* address, size_t bytes, int access) const {
    errno = 0;
    ibv_mr* const mr = ibv_reg_mr(pd, address, bytes, access);
    if (mr == nullptr) return errno;
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    return 0;
  }
  ibv_context* const context = open("mem0");
  ibv_pd* const pd = ibv_alloc_pd(context);
  const Pages pages{16 * 4096};
};

TEST_F(MemoryTest, RemoteWriteAndAtomicNeedLocalWrite) {
  EXPECT_EQ(error_of(pages.data(), 4096, 0), 0);
  EXPECT_EQ(error_of(pages.data(), 4096, IBV_ACCESS_REMOTE_READ), 0);
  EXPECT_EQ(error_of(pages.data(), 4096, IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(error_of(pages.data(), 4096, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
  EXPECT_EQ(error_of(pages.data(), 4096, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ON_DEMAND), EINVAL);
  EXPECT_EQ(error_of(pages.data(), 4096, kAllRights), 0);
}

TEST_F(MemoryTest, UnknownBitsAreRefusedUnlessOptional) {
  EXPECT_EQ(error_of(pages.data(), 4096, 1 << 10), EINVAL);
  EXPECT_EQ(error_of(pages.data(), 4096, 1 << 30), EINVAL);
  for (int bit = 20; bit <= 29; ++bit) EXPECT_EQ(error_of(pages.data(), 4096, 1 << bit), 0) << bit;
}

TEST_F(MemoryTest, RangesMustBeReal) {
  EXPECT_EQ(error_of(pages.data(), 0, 0), EINVAL);
  EXPECT_EQ(error_of(pages.data(), size_t{1} << 62, 0), EINVAL);
  EXPECT_EQ(error_of(reinterpret_cast<void*>(~uint64_t{0} - 100), 4096, IBV_ACCESS_ON_DEMAND), EINVAL);
  EXPECT_EQ(error_of(nullptr, SIZE_MAX, IBV_ACCESS_ON_DEMAND), 0) << "the implicit region";
  EXPECT_EQ(error_of(nullptr, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE), EINVAL) << "only on demand";
  EXPECT_EQ(error_of(pages.data(), SIZE_MAX, IBV_ACCESS_ON_DEMAND), EINVAL) << "only from address 0";
  EXPECT_EQ(ibv_reg_mr_iova2(pd, nullptr, SIZE_MAX, 4096, IBV_ACCESS_ON_DEMAND), nullptr)
      << "only with iova 0";
  EXPECT_EQ(errno, EINVAL);
  auto* const hole =
      static_cast<uint8_t*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  munmap(hole, 4096);
  EXPECT_EQ(error_of(hole, 4096, IBV_ACCESS_LOCAL_WRITE), EFAULT);
}

TEST_F(MemoryTest, ADomainInUseIsBusy) {
  ibv_mr* const mr = ibv_reg_mr(pd, pages.data(), pages.size(), kOnDemand);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, pages.data());
  EXPECT_EQ(mr->length, pages.size());
  EXPECT_EQ(mr->pd, pd);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(MemoryTest, AFailedRegistrationLeavesNothing) {
  faults().refuse_regions = true;
  EXPECT_EQ(error_of(pages.data(), 4096, IBV_ACCESS_LOCAL_WRITE), ENOMEM);
  EXPECT_EQ(error_of(pages.data(), 4096, IBV_ACCESS_ON_DEMAND), ENOMEM);
  faults().refuse_regions = false;
  // TearDown's dealloc_pd checks that no reference remains.
}

TEST_F(MemoryTest, ReregistrationMovesTheRegion) {
  ibv_mr* const mr = ibv_reg_mr(pd, pages.data(), 4096, kLocalWrite);
  ASSERT_NE(mr, nullptr);
  ibv_pd* const other = ibv_alloc_pd(context);
  const int all = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  ASSERT_EQ(ibv_rereg_mr(mr, all, other, pages.data() + 4096, 8192, kAllRights), 0);
  EXPECT_EQ(mr->pd, other);
  EXPECT_EQ(mr->addr, pages.data() + 4096);
  EXPECT_EQ(mr->length, 8192U);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(MemoryTest, ReregistrationThatCannotBeLeavesTheOldRegion) {
  ibv_mr* const mr = ibv_reg_mr(pd, pages.data(), 4096, kLocalWrite);
  ASSERT_NE(mr, nullptr);
  const ibv_mr before = *mr;
  const auto refused = [&](int flags, int access, int error) {
    errno = 0;
    return ibv_rereg_mr(mr, flags, nullptr, nullptr, 0, access) == IBV_REREG_MR_ERR_INPUT && errno == error;
  };
  EXPECT_TRUE(refused(0, 0, EINVAL));
  EXPECT_TRUE(refused(1 << 5, 0, EINVAL));
  EXPECT_TRUE(refused(IBV_REREG_MR_CHANGE_PD, 0, EINVAL));
  EXPECT_TRUE(refused(IBV_REREG_MR_CHANGE_TRANSLATION, 0, EINVAL));
  EXPECT_TRUE(refused(IBV_REREG_MR_CHANGE_ACCESS, IBV_ACCESS_REMOTE_WRITE, EINVAL));
  EXPECT_TRUE(refused(IBV_REREG_MR_CHANGE_ACCESS, IBV_ACCESS_ON_DEMAND, EOPNOTSUPP)) << "ODP is for life";
  faults().refuse_regions = true;
  EXPECT_TRUE(refused(IBV_REREG_MR_CHANGE_ACCESS, kAllRights, ENOMEM));
  faults().refuse_regions = false;
  EXPECT_EQ(mr->lkey, before.lkey);
  EXPECT_EQ(mr->rkey, before.rkey);
  EXPECT_EQ(mr->pd, before.pd);
  EXPECT_EQ(mr->addr, before.addr);
  EXPECT_EQ(mr->length, before.length);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(MemoryTest, PrefetchMakesPagesResident) {
  ibv_mr* const mr = ibv_reg_mr(pd, pages.data(), pages.size(), kAllRights | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(mr, nullptr);
  const auto resident = [&] {
    std::array<unsigned char, 16> in_core{};
    EXPECT_EQ(mincore(pages.data(), pages.size(), in_core.data()), 0);
    return std::accumulate(in_core.begin(), in_core.end(), 0, [](int sum, int c) { return sum + (c & 1); });
  };
  EXPECT_EQ(resident(), 0) << "nothing is touched at registration";
  ibv_sge sge = sge_of(mr, 0, pages.size());
  EXPECT_EQ(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), 0);
  EXPECT_EQ(resident(), 16);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(MemoryTest, AdviceIsCheckedAsTheManPageSays) {
  ibv_mr* const read_only = ibv_reg_mr(pd, pages.data(), pages.size(), kOnDemand);
  ASSERT_NE(read_only, nullptr);
  ibv_sge sge = sge_of(read_only, 0, 4096);
  const auto advise = [&](auto advice, uint32_t flags, ibv_sge* list, uint32_t count) {
    return ibv_advise_mr(pd, advice, flags, list, count);
  };
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 2, &sge, 1), EINVAL) << "unknown flag";
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 0), EINVAL);
  // A value that a later header may define.
  EXPECT_EQ(advise(static_cast<ibv_advise_mr_advice>(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT + 1), 0, &sge, 1),
            ENOTSUP);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, &sge, 1), 0);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge, 1), EPERM)
      << "a region without write access";
  ibv_sge outside = sge_of(read_only, pages.size() - 10, 20);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &outside, 1), EFAULT);
  ibv_sge bad_key = sge;
  bad_key.lkey ^= 0xff;
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &bad_key, 1), EFAULT);
  EXPECT_EQ(ibv_dereg_mr(read_only), 0);
}

}  // namespace

}  // namespace faultline::verbs::test::memory_test
