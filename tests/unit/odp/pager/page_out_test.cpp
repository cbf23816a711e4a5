// SPDX-License-Identifier: BSD-3-Clause
// Pages that an engine takes away on request are page faults again, and keep their contents.
#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test::page_out_test {
namespace {

constexpr size_t kPages = 8;
constexpr size_t kPage = 4096;
constexpr uint32_t kRights = kLocalWrite | kRemoteWrite | kRemoteRead;

Outcome probe(EngineSession& session, const Target& target, uint64_t va, uint64_t length_bytes) {
  session.enter();
  const Outcome outcome = session.probe(target, va, length_bytes);
  session.leave();
  return outcome;
}

void page_out(EngineSession& session, Key key, uint64_t va) {
  session.enter();
  session.page_out(key, va);
  session.leave();
}

struct Case {
  const char* name;
  uint32_t access;
  size_t first_byte;  ///< of the region, in the memory
  Outcome after;      ///< of a probe
};

const Case kCases[] = {
    {"OnDemand", kRights | kOnDemand, 0, Outcome::miss},
    {"NotAtAPagesStart", kRights | kOnDemand, 100, Outcome::miss},
    {"Classic", kRights, 0, Outcome::done},
};

class PageOut : public ::testing::TestWithParam<Case> {};

TEST_P(PageOut, TakesThePagesOfTheRegionAndKeepsTheirContents) {
  auto domain = make_domain();
  const Mapping memory(kPages);
  const uint64_t start = memory.address() + GetParam().first_byte;
  const uint64_t length_bytes = memory.size() - 2 * GetParam().first_byte;
  const RegionResult region = domain->register_region({.domain = 1,
                                                       .address = start,
                                                       .length_bytes = length_bytes,
                                                       .iova = start,
                                                       .access = GetParam().access});
  ASSERT_EQ(region.error, 0);
  const Target target{region.key, 1, kRemoteWrite};
  auto session = domain->attach_engine();
  std::array<uint8_t, 8> bytes{1, 2, 3, 4, 5, 6, 7, 8};
  for (uint64_t at = 0; at < length_bytes - kPage; at += kPage)
    ASSERT_EQ(write_all(*session, target, start + at, bytes), Outcome::done);
  ASSERT_EQ(probe(*session, target, start, length_bytes - kPage), Outcome::done);
  page_out(*session, region.key, start);
  EXPECT_EQ(probe(*session, target, start, 8), GetParam().after);
  EXPECT_EQ(probe(*session, target, start + 3 * kPage, 8), GetParam().after);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), reinterpret_cast<const uint8_t*>(start + 2 * kPage)));
  bytes.fill(9);
  EXPECT_EQ(write_all(*session, target, start + kPage, bytes), Outcome::done) << "the page comes back";
  EXPECT_EQ(memory.data()[start + kPage - memory.address()], 9);
}

INSTANTIATE_TEST_SUITE_P(All, PageOut, ::testing::ValuesIn(kCases),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(PageOutOfAnImplicitRegion, TakesThePagesAroundTheAddress) {
  auto domain = make_domain();
  const RegionResult region = domain->register_region(
      {.domain = 1, .address = 0, .length_bytes = UINT64_MAX, .iova = 0, .access = kRights | kOnDemand});
  ASSERT_EQ(region.error, 0);
  const Target target{region.key, 1, kRemoteWrite};
  const Mapping memory(kPages);
  auto session = domain->attach_engine();
  const std::array<uint8_t, 8> bytes{1, 2, 3, 4, 5, 6, 7, 8};
  ASSERT_EQ(write_all(*session, target, memory.address(), bytes), Outcome::done);
  ASSERT_EQ(probe(*session, target, memory.address(), 8), Outcome::done);
  page_out(*session, region.key, memory.address());
  EXPECT_EQ(probe(*session, target, memory.address(), 8), Outcome::miss);
}

TEST(PageOutOfNoRegion, DoesNothing) {
  auto domain = make_domain();
  auto session = domain->attach_engine();
  page_out(*session, 0x1234, 0);
  EXPECT_EQ(domain->counters().num_odp_mrs, 0U);
}

}  // namespace
}  // namespace faultline::odp::test::page_out_test
