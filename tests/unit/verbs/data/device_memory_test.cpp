// SPDX-License-Identifier: BSD-3-Clause
// Device memory (ibv_alloc_dm(3)): allocation limits, copies, its regions under traffic, imports.
#include <algorithm>

#include <unistd.h>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::device_memory_test {

namespace {

constexpr int kZeroBased = kAllRights | IBV_ACCESS_ZERO_BASED;

class DeviceMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ibv_device_attr_ex attributes{};
    ASSERT_EQ(ibv_query_device_ex(a.context, nullptr, &attributes), 0);
    limit_bytes = attributes.max_dm_size;
    ASSERT_GE(limit_bytes, 16384U);
  }
  static ibv_dm* allocate(ibv_context* context, uint64_t bytes, uint32_t log_align = 0,
                          uint32_t comp_mask = 0) {
    ibv_alloc_dm_attr attributes{bytes, log_align, comp_mask};
    errno = 0;
    return ibv_alloc_dm(context, &attributes);
  }
  static uint64_t word(ibv_dm* dm, uint64_t offset) {
    uint64_t value = 0;
    EXPECT_EQ(ibv_memcpy_from_dm(&value, dm, offset, sizeof value), 0);
    return value;
  }
  End a{"mem0"};
  End b{"mem1"};
  uint64_t limit_bytes = 0;
};

TEST_F(DeviceMemoryTest, AsMuchAsTheDeviceSaysAndNoMore) {
  EXPECT_EQ(allocate(a.context, limit_bytes + 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(allocate(a.context, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(allocate(a.context, 64, 13), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(allocate(a.context, 64, 0, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  for (int round = 0; round < 2; ++round) {
    ibv_dm* const half = allocate(a.context, limit_bytes / 2, 12);
    ibv_dm* const rest = allocate(a.context, limit_bytes - limit_bytes / 2);
    ASSERT_NE(half, nullptr);
    ASSERT_NE(rest, nullptr);
    EXPECT_EQ(allocate(a.context, 1), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(ibv_free_dm(half), 0);
    EXPECT_EQ(ibv_free_dm(rest), 0);
  }
}

TEST_F(DeviceMemoryTest, CopiesAreWholeWordsInside) {
  ibv_dm* const dm = allocate(a.context, 100);
  ASSERT_NE(dm, nullptr);
  std::array<uint8_t, 200> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 8, bytes.data(), 92), 0);
  std::array<uint8_t, 92> back{};
  EXPECT_EQ(ibv_memcpy_from_dm(back.data(), dm, 8, back.size()), 0);
  EXPECT_TRUE(std::equal(back.begin(), back.end(), bytes.begin()));
  EXPECT_EQ(word(dm, 0), 0U) << "fresh memory";
  struct Wrong {
    uint64_t offset;
    size_t length;
    int error;
  };
  for (const auto& [offset, length, error] :
       {Wrong{3, 4, EINVAL}, Wrong{4, 3, EINVAL}, Wrong{104, 4, EFAULT}, Wrong{0, 104, EFAULT},
        Wrong{~uint64_t{0} - 3, 8, EFAULT}, Wrong{4, ~size_t{0} - 3, EFAULT}}) {
    EXPECT_EQ(ibv_memcpy_to_dm(dm, offset, bytes.data(), length), error) << offset << ", " << length;
    EXPECT_EQ(ibv_memcpy_from_dm(bytes.data(), dm, offset, length), error) << offset << ", " << length;
  }
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 0, nullptr, 4), EINVAL);
  EXPECT_EQ(ibv_memcpy_from_dm(nullptr, dm, 0, 4), EINVAL);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DeviceMemoryTest, RegistrationsThatAreRefused) {
  ibv_dm* const dm = allocate(a.context, 4096);
  ibv_dm* const other = allocate(b.context, 4096);
  ASSERT_NE(dm, nullptr);
  ASSERT_NE(other, nullptr);
  const auto refused = [&](ibv_dm* of, uint64_t offset, size_t length, int access) {
    errno = 0;
    EXPECT_EQ(ibv_reg_dm_mr(a.pd, of, offset, length, static_cast<uint32_t>(access)), nullptr);
    return errno;
  };
  EXPECT_EQ(refused(dm, 0, 4097, kZeroBased), EINVAL);
  EXPECT_EQ(refused(dm, 4097, 0, kZeroBased), EINVAL);
  EXPECT_EQ(refused(dm, 8, ~size_t{0} - 7, kZeroBased), EINVAL);
  EXPECT_EQ(refused(dm, 0, 4096, kAllRights), EINVAL);
  EXPECT_EQ(refused(dm, 0, 4096, kZeroBased | IBV_ACCESS_ON_DEMAND), EINVAL);
  EXPECT_EQ(refused(dm, 0, 4096, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(refused(other, 0, 4096, kZeroBased), EINVAL) << "another device's";
  ibv_mr* const mr = ibv_reg_dm_mr(a.pd, dm, 1024, 2048, kZeroBased);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, nullptr);
  EXPECT_EQ(mr->length, 2048U);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kZeroBased),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_free_dm(dm), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
  EXPECT_EQ(ibv_free_dm(other), 0);
}

TEST_F(DeviceMemoryTest, CarriesTrafficOfAllKinds) {
  constexpr uint64_t kOffset = 64;
  ibv_dm* const from = allocate(a.context, 8192);
  ibv_dm* const to = allocate(b.context, 8192);
  ASSERT_NE(from, nullptr);
  ASSERT_NE(to, nullptr);
  ibv_mr* const local = ibv_reg_dm_mr(a.pd, from, 0, 8192, kZeroBased);
  ibv_mr* const remote = ibv_reg_dm_mr(b.pd, to, kOffset, 4096, kZeroBased);
  ASSERT_NE(local, nullptr);
  ASSERT_NE(remote, nullptr);
  connect(a, b);
  std::vector<uint8_t> data(4096);
  std::iota(data.begin(), data.end(), uint8_t{1});
  ASSERT_EQ(ibv_memcpy_to_dm(from, 4096, data.data(), data.size()), 0);

  ibv_sge sge{4096, 4096, local->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  const auto run = [&](ibv_wr_opcode opcode, uint64_t remote_offset) {
    wr.opcode = opcode;
    wr.wr.rdma = {remote_offset, remote->rkey};
    EXPECT_EQ(a.post_send(wr), 0);
    return completion(a, b).status;
  };
  EXPECT_EQ(run(IBV_WR_RDMA_WRITE, 0), IBV_WC_SUCCESS);
  std::vector<uint8_t> back(4096);
  ASSERT_EQ(ibv_memcpy_from_dm(back.data(), to, kOffset, back.size()), 0);
  EXPECT_EQ(back, data);

  sge = {0, 4096, local->lkey};
  EXPECT_EQ(run(IBV_WR_RDMA_READ, 0), IBV_WC_SUCCESS);
  ASSERT_EQ(ibv_memcpy_from_dm(back.data(), from, 0, back.size()), 0);
  EXPECT_EQ(back, data);

  ASSERT_EQ(b.post_receive(7, {{2048, 1024, remote->lkey}}), 0);
  sge = {4096 + 512, 512, local->lkey};
  EXPECT_EQ(run(IBV_WR_SEND, 0), IBV_WC_SUCCESS);
  EXPECT_EQ(completion(b, a).byte_len, 512U);
  EXPECT_EQ(word(to, kOffset + 2048), word(from, 4096 + 512));

  const uint64_t before = word(to, kOffset + 8);
  sge = {0, 8, local->lkey};
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.wr.atomic = {8, 5, 0, remote->rkey};
  ASSERT_EQ(a.post_send(wr), 0);
  ASSERT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(word(to, kOffset + 8), before + 5);
  EXPECT_EQ(word(from, 0), before);
  wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  wr.wr.atomic = {8, before + 5, 99, remote->rkey};
  ASSERT_EQ(a.post_send(wr), 0);
  ASSERT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(word(to, kOffset + 8), 99U);

  // One byte beyond the region, although the device memory continues.
  sge = {4096, 8, local->lkey};
  EXPECT_EQ(run(IBV_WR_RDMA_WRITE, 4096 - 7), IBV_WC_REM_ACCESS_ERR);

  EXPECT_EQ(ibv_dereg_mr(local), 0);
  EXPECT_EQ(ibv_dereg_mr(remote), 0);
  EXPECT_EQ(ibv_free_dm(from), 0);
  EXPECT_EQ(ibv_free_dm(to), 0);
}

TEST_F(DeviceMemoryTest, ARegionMayBeEmptyAndGrantsNothing) {
  ibv_dm* const dm = allocate(b.context, 4096);
  ASSERT_NE(dm, nullptr);
  ibv_mr* const empty = ibv_reg_dm_mr(b.pd, dm, 128, 0, kZeroBased);
  ASSERT_NE(empty, nullptr);
  EXPECT_EQ(empty->length, 0U);
  const Pages pages(4096);
  ibv_mr* const local = a.add_region(pages);
  connect(a, b);
  ibv_sge sge = sge_of(local, 0, 0);
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {0, empty->rkey};
  ASSERT_EQ(a.post_send(wr), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  sge.length = 1;
  ASSERT_EQ(a.post_send(wr), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_free_dm(dm), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(empty), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DeviceMemoryTest, AnImportIsTheSameMemory) {
  ibv_dm* const dm = allocate(a.context, 4096);
  ASSERT_NE(dm, nullptr);
  ibv_context* const imported = ibv_import_device(dup(a.context->cmd_fd));
  ASSERT_NE(imported, nullptr);
  EXPECT_EQ(ibv_import_dm(imported, dm->handle + 1000), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_dm* const first = ibv_import_dm(imported, dm->handle);
  ibv_dm* const second = ibv_import_dm(imported, dm->handle);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  uint64_t value = 0x1122334455667788;
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 40, &value, sizeof value), 0);
  EXPECT_EQ(word(first, 40), value);
  ibv_unimport_dm(second);
  EXPECT_EQ(word(dm, 40), value) << "an unimport ends one handle alone";

  // ... while a free through any handle ends them all; the remaining handles can only be freed.
  EXPECT_EQ(ibv_free_dm(first), 0);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 0, &value, sizeof value), EINVAL);
  EXPECT_EQ(ibv_reg_dm_mr(a.pd, dm, 0, 4096, kZeroBased), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_free_dm(dm), 0);
  EXPECT_EQ(ibv_close_device(imported), 0);
  ibv_dm* const all = allocate(a.context, limit_bytes);
  EXPECT_NE(all, nullptr) << "nothing of it is held any more";
  EXPECT_EQ(ibv_free_dm(all), 0);
}

}  // namespace

}  // namespace faultline::verbs::test::device_memory_test
