// SPDX-License-Identifier: BSD-3-Clause
// Buffers of the device (ibv_alloc_buf(3)), and what ibv_reg_mr_ex(3) registers.
#include <algorithm>

#include "stack/verbs/memory/later_calls.hpp"
#include "tests/unit/verbs/fixture.hpp"

extern "C" int ibv_query_port_speed(ibv_context* context, uint32_t port_num, uint64_t* speed);

namespace faultline::verbs::test::buffer_test {

namespace {

using Attributes = RegionAttributes;
constexpr size_t kBytes = 3 * 4096;

class BufferTest : public ::testing::Test {
 protected:
  void SetUp() override {
    memory = static_cast<uint8_t*>(ibv_alloc_buf(end.pd, kBytes, &buffer));
    ASSERT_NE(memory, nullptr);
  }
  void TearDown() override { ibv_free_buf(buffer); }

  [[nodiscard]] Attributes at(void* address, size_t length_bytes = 4096) const {
    Attributes wanted{};
    wanted.members = Attributes::address_bit;
    wanted.address = address;
    wanted.length_bytes = length_bytes;
    wanted.access = kAllRights;
    return wanted;
  }
  [[nodiscard]] Attributes within(void* address, size_t length_bytes) const {
    Attributes wanted = at(address, length_bytes);
    wanted.members |= Attributes::buffer_bit;
    wanted.buffer = buffer;
    return wanted;
  }
  [[nodiscard]] ibv_mr* add(Attributes wanted) {
    ibv_mr* const mr = ibv_reg_mr_ex(end.pd, reinterpret_cast<ibv_mr_init_attr*>(&wanted));
    if (mr != nullptr) end.regions.push_back(mr);
    return mr;
  }
  [[nodiscard]] int error_of(const Attributes& wanted) {
    errno = 0;
    return add(wanted) == nullptr ? errno : 0;
  }

  End end{"mem0"};
  ibv_buf* buffer = nullptr;
  uint8_t* memory = nullptr;
};

TEST_F(BufferTest, IsOfWholePagesThatAreTheProgramsToUse) {
  EXPECT_EQ(reinterpret_cast<uint64_t>(memory) % 4096, 0U);
  std::fill_n(memory, kBytes, uint8_t{7});
}

TEST_F(BufferTest, HasAPartRegistered) {
  ibv_mr* const mr = ibv_reg_buf_mr(end.pd, buffer, memory + 100, kBytes - 100, kAllRights);
  ASSERT_NE(mr, nullptr);
  end.regions.push_back(mr);
  EXPECT_EQ(mr->addr, memory + 100);
  EXPECT_EQ(mr->length, kBytes - 100);
  EXPECT_EQ(mr->pd, end.pd);
}

TEST_F(BufferTest, IsNotRegisteredBeyondItsEnds) {
  for (const auto& [address, length_bytes] :
       {std::pair{memory, kBytes + 1}, std::pair{memory + kBytes, size_t{1}},
        std::pair{memory - 1, size_t{2}}, std::pair{memory + 1, kBytes},
        std::pair{memory + kBytes + 1, size_t{0}}, std::pair{memory + 4096, SIZE_MAX}})
    EXPECT_EQ(error_of(within(address, length_bytes)), EINVAL) << length_bytes;
  EXPECT_EQ(error_of(within(memory, kBytes)), 0);
}

TEST_F(BufferTest, BelongsToItsDomain) {
  ibv_pd* const other = ibv_alloc_pd(end.context);
  errno = 0;
  EXPECT_EQ(ibv_reg_buf_mr(other, buffer, memory, kBytes, kAllRights), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(BufferTest, IsNoBufferOnceItIsFreed) {
  ibv_buf* const freed = buffer;
  ibv_free_buf(buffer);
  EXPECT_EQ(ibv_reg_buf_mr(end.pd, freed, memory, kBytes, kAllRights), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_free_buf(freed);  // nothing: no live buffer
  ibv_free_buf(nullptr);
  EXPECT_EQ(ibv_export_buf_dmabuf_fd(freed), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(BufferTest, IsNoDmaBuf) {
  EXPECT_EQ(ibv_export_buf_dmabuf_fd(buffer), -1);
  EXPECT_EQ(errno, ENODATA);
}

TEST_F(BufferTest, OfAnInvalidDomainIsRefused) {
  ibv_buf* none = nullptr;
  EXPECT_EQ(ibv_alloc_buf(nullptr, kBytes, &none), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_alloc_buf(end.pd, kBytes, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_alloc_buf(end.pd, SIZE_MAX, &none), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(none, nullptr);
}

TEST_F(BufferTest, PeersReadAndWriteIt) {
  End peer{"mem1"};
  const Pages pages{4096};
  connect(end, peer);
  ibv_mr* const theirs = peer.add_region(pages);
  pages.fill(3);
  ibv_mr* const ours = add(within(memory, kBytes));
  ASSERT_NE(ours, nullptr);
  ibv_sge sge{pages.address(), 4096, theirs->lkey};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma = {reinterpret_cast<uint64_t>(memory) + 1000, ours->rkey};
  ASSERT_EQ(peer.post_send(wr), 0);
  EXPECT_EQ(completion(peer, end).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(memory + 1000, pages.data(), 4096), 0);
}

using RegionAttributesTest = BufferTest;

TEST_F(RegionAttributesTest, AnAddressIsTheIovaUnlessOneIsGiven) {
  Attributes wanted = at(memory);
  ibv_mr* const plain = add(wanted);
  ASSERT_NE(plain, nullptr);
  EXPECT_EQ(plain->addr, memory);
  wanted.members |= Attributes::iova_bit;
  wanted.iova = 0x1000;
  EXPECT_EQ(error_of(wanted), 0);
  wanted.iova = ~uint64_t{0} - 100;  // the range would wrap
  EXPECT_EQ(error_of(wanted), EINVAL);
  wanted.members &= ~uint64_t{Attributes::iova_bit};  // not given, so not read
  EXPECT_EQ(error_of(wanted), 0);
}

TEST_F(RegionAttributesTest, TheImplicitRegionIsTheWholeAddressSpace) {
  Attributes wanted = at(nullptr, SIZE_MAX);
  EXPECT_EQ(error_of(wanted), EINVAL);
  wanted.access = IBV_ACCESS_ON_DEMAND;
  EXPECT_EQ(error_of(wanted), 0);
}

TEST_F(RegionAttributesTest, MustBeOneKindOfMemory) {
  struct Case {
    uint64_t members;
    int error;
  };
  for (const Case& one : {
           Case{0, EINVAL}, Case{Attributes::iova_bit, EINVAL},
           Case{Attributes::descriptor_bit | Attributes::iova_bit, EINVAL},    // no offset
           Case{Attributes::offset_bit | Attributes::iova_bit, EINVAL},        // no descriptor
           Case{Attributes::descriptor_bit | Attributes::offset_bit, EINVAL},  // no iova
           Case{Attributes::address_bit | Attributes::descriptor_bit | Attributes::offset_bit |
                    Attributes::iova_bit,
                EINVAL},
           Case{Attributes::address_bit | Attributes::offset_bit, EINVAL},
           Case{Attributes::buffer_bit, EINVAL},  // no address
           Case{Attributes::buffer_bit | Attributes::descriptor_bit | Attributes::offset_bit |
                    Attributes::iova_bit,
                EINVAL},
           Case{Attributes::address_bit | (Attributes::kKnown + 1), EINVAL},
           Case{Attributes::address_bit | Attributes::handle_bit, EOPNOTSUPP},
           Case{Attributes::descriptor_bit | Attributes::offset_bit | Attributes::iova_bit,
                EBADF},  // as ibv_reg_dmabuf_mr
       }) {
    Attributes wanted = within(memory, 4096);
    wanted.members = one.members;
    wanted.descriptor = -1;
    EXPECT_EQ(error_of(wanted), one.error) << one.members;
  }
  errno = 0;
  EXPECT_EQ(ibv_reg_mr_ex(end.pd, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  Attributes wanted = at(memory);
  EXPECT_EQ(ibv_reg_mr_ex(nullptr, reinterpret_cast<ibv_mr_init_attr*>(&wanted)), nullptr);
}

TEST(PortSpeed, IsThatOfAllLanesInUnitsOf100MbitPerSecond) {
  ibv_context* const context = open("mem0");
  uint64_t speed = 0;
  EXPECT_EQ(ibv_query_port_speed(context, 1, &speed), 0);
  EXPECT_EQ(speed, 1000U) << "four lanes of 25 Gb/s";
  EXPECT_EQ(ibv_query_port_speed(context, 2, &speed), EINVAL);
  EXPECT_EQ(ibv_query_port_speed(context, 1, nullptr), EINVAL);
  EXPECT_EQ(ibv_query_port_speed(nullptr, 1, &speed), EINVAL);
  EXPECT_EQ(ibv_close_device(context), 0);
}

}  // namespace

}  // namespace faultline::verbs::test::buffer_test
