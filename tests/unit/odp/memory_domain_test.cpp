// SPDX-License-Identifier: BSD-3-Clause
#include "odp/memory_domain.hpp"

#include <array>
#include <cerrno>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test {
namespace {

constexpr uint32_t kAllAccess = kLocalWrite | kRemoteWrite | kRemoteRead;

TEST(MemoryDomain, OnDemandRegionMissesThenServes) {
  auto domain = make_domain();
  const Mapping memory(16);
  const auto result = domain->register_region({.domain = 1,
                                               .address = memory.address(),
                                               .length_bytes = memory.size(),
                                               .iova = 0x1000,
                                               .access = kAllAccess | kOnDemand});
  ASSERT_EQ(result.error, 0);
  auto session = domain->attach_engine();
  const Target target{result.key, 1, kRemoteWrite};
  const std::vector<uint8_t> bytes(6000, 0xab);
  session->enter();
  EXPECT_EQ(session->check(target, 0x1000 + 100, bytes.size()), Outcome::done);
  EXPECT_EQ(session->probe(target, 0x1000 + 100, bytes.size()), Outcome::miss);
  EXPECT_EQ(session->write(target, 0x1000 + 100, bytes), Outcome::miss);
  session->leave();
  EXPECT_EQ(write_all(*session, target, 0x1000 + 100, bytes), Outcome::done);
  EXPECT_EQ(std::memcmp(memory.data() + 100, bytes.data(), bytes.size()), 0);
  EXPECT_EQ(memory.data()[99], 0);
  EXPECT_EQ(memory.data()[6100], 0);
  const Counters counters = domain->counters();
  EXPECT_EQ(counters.num_page_faults, 1U);
  EXPECT_EQ(counters.num_page_fault_pages, 2U);
  EXPECT_EQ(counters.num_odp_mr_pages, 2U);
  EXPECT_EQ(counters.num_odp_mrs, 1U);
  EXPECT_EQ(counters.pinned_bytes, 8192U);
  EXPECT_EQ(domain->deregister_region(result.key), 0);
  EXPECT_EQ(domain->deregister_region(result.key), ENOENT);
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 0U);
  EXPECT_EQ(domain->counters().num_odp_mrs, 0U);
  EXPECT_EQ(domain->counters().pinned_bytes, 0U);
}

TEST(MemoryDomain, ClassicRegionIsThereAtOnce) {
  auto domain = make_domain();
  const Mapping memory(16);
  const auto result = domain->register_region({.domain = 1,
                                               .address = memory.address() + 5,
                                               .length_bytes = memory.size() - 5,
                                               .iova = memory.address() + 5,
                                               .access = kAllAccess});
  ASSERT_EQ(result.error, 0);
  EXPECT_EQ(domain->counters().pinned_bytes, memory.size());
  auto session = domain->attach_engine();
  session->enter();
  const Target target{result.key, 1, kRemoteWrite};
  const std::vector<uint8_t> bytes(4096, 0x5a);
  EXPECT_EQ(session->write(target, memory.address() + 5, bytes), Outcome::done);
  EXPECT_EQ(memory.data()[5], 0x5a);
  session->leave();
}

}  // namespace
}  // namespace faultline::odp::test
