// SPDX-License-Identifier: BSD-3-Clause
// The counters: of each region, and the service times of faults by kind.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "odp/mappings/page_survey.hpp"
#include "tests/unit/odp/pager/implicit_region.hpp"

namespace faultline::odp::test::fault_statistics_test {
namespace {

constexpr uint64_t kPage = 4096;

class FaultStatistics : public testing::Test {
 protected:
  Target add(uint64_t address, uint64_t length_bytes) {
    const auto result =
        domain_->register_region({.domain = 1,
                                  .address = address,
                                  .length_bytes = length_bytes,
                                  .iova = address,
                                  .access = kLocalWrite | kRemoteWrite | kRemoteRead | kOnDemand});
    EXPECT_EQ(result.error, 0);
    return {result.key, 1, kRemoteWrite};
  }
  [[nodiscard]] RegionCounters of(const Target& target) {
    RegionCounters counters;
    EXPECT_TRUE(domain_->region_counters(target.key, counters));
    return counters;
  }
  /// The call returns when the engines have stopped; the pages are counted right after that.
  [[nodiscard]] bool invalidations_become(const Target& target, uint64_t pages) {
    return eventually([&] { return of(target).page_invalidations == pages; });
  }
  /// Returns the number of services of each kind.
  [[nodiscard]] std::array<uint64_t, kFaultKinds> services() const {
    std::array<uint64_t, kFaultKinds> sums{};
    const FaultHistogram histogram = domain_->counters().fault_latency;
    for (size_t kind = 0; kind < kFaultKinds; ++kind)
      sums[kind] = std::accumulate(histogram[kind].begin(), histogram[kind].end(), uint64_t{0});
    return sums;
  }
  void write(const Target& target, uint64_t va, uint64_t length_bytes = 8) {
    const std::vector<uint8_t> bytes(length_bytes, 1);
    ASSERT_EQ(write_all(*session_, {target.key, 1, kRemoteWrite}, va, bytes), Outcome::done);
  }
  void read(const Target& target, uint64_t va, uint64_t length_bytes = 8) {
    std::vector<uint8_t> bytes(length_bytes);
    ASSERT_EQ(read_all(*session_, {target.key, 1, kRemoteRead}, va, bytes), Outcome::done);
  }
  /// Checks that exactly one service was added since `before`, and that it is of `kind`.
  void expect_one_more(FaultKind kind, std::array<uint64_t, kFaultKinds> before) {
    ++before[static_cast<size_t>(kind)];
    EXPECT_EQ(services(), before) << name_of(kind);
  }

  const std::unique_ptr<MemoryDomain> domain_ = make_domain();
  const std::unique_ptr<EngineSession> session_ = domain_->attach_engine();
};

TEST_F(FaultStatistics, RegionsCountTheirPages) {
  const Mapping memory(200);
  const Mapping other(10);
  const Target target = add(memory.address(), memory.size());
  const Target unused = add(other.address(), other.size());
  const uint64_t va = memory.address();
  write(target, va, 10 * kPage);
  EXPECT_EQ(of(target).page_faults, 10U);
  EXPECT_EQ(of(target).resident_pages, 10U);
  ASSERT_EQ(advise(*domain_, target, va + 5 * kPage, 10 * kPage, true), 0);
  EXPECT_EQ(of(target).page_prefetch, 5U);
  EXPECT_EQ(of(target).resident_pages, 15U);
  ASSERT_EQ(madvise(memory.data() + 13 * kPage, 10 * kPage, MADV_DONTNEED), 0);
  EXPECT_TRUE(invalidations_become(target, 2));
  EXPECT_EQ(of(target).resident_pages, 13U);
  ASSERT_EQ(munmap(memory.data(), 3 * kPage), 0);
  EXPECT_TRUE(invalidations_become(target, 5));
  EXPECT_EQ(of(target).resident_pages, 10U);
  EXPECT_EQ(of(target).page_faults, 10U);
  const RegionCounters none = of(unused);
  EXPECT_EQ(none.page_faults + none.page_invalidations + none.page_prefetch + none.resident_pages, 0U);

  const Counters counters = domain_->counters();
  EXPECT_EQ(counters.num_page_fault_pages, 10U);
  EXPECT_EQ(counters.num_prefetch_pages, 5U);
  EXPECT_EQ(counters.num_invalidation_pages, 5U);
  EXPECT_EQ(counters.num_invalidations, 2U);
  EXPECT_EQ(counters.num_odp_mr_pages, 10U);
  EXPECT_EQ(domain_->deregister_region(target.key), 0);
  RegionCounters gone;
  EXPECT_FALSE(domain_->region_counters(target.key, gone));
}

TEST_F(FaultStatistics, ImplicitRegionsCountTheirChildrensPages) {
  const Pieces memory(3);
  const Target target{add_implicit(*domain_), 1, kRemoteWrite};
  write(target, memory.address() + kChildBytes - kPage, kChildBytes + 2 * kPage);
  EXPECT_EQ(of(target).page_faults, kChildPages + 2);
  EXPECT_EQ(of(target).resident_pages, kChildPages + 2);
  ASSERT_EQ(advise(*domain_, target, memory.address(), 10, true), 0);
  EXPECT_EQ(of(target).page_prefetch, 1U);
  ASSERT_EQ(munmap(memory.piece(1), kChildBytes), 0);
  EXPECT_TRUE(invalidations_become(target, kChildPages));
  EXPECT_TRUE(eventually([&] { return domain_->counters().num_implicit_children == 2; }));
  // The child is removed; its counts remain.
  EXPECT_EQ(of(target).page_invalidations, kChildPages);
  EXPECT_EQ(of(target).page_faults, kChildPages + 2);
  EXPECT_EQ(of(target).resident_pages, 3U);
}

TEST_F(FaultStatistics, PagesThatAreThereFreshOrOnlyRead) {
  const Mapping memory(8);
  const Target target = add(memory.address(), memory.size());
  auto before = services();
  memory.data()[0] = 1;
  write(target, memory.address());
  expect_one_more(FaultKind::present, before);

  before = services();
  write(target, memory.address() + kPage);
  expect_one_more(FaultKind::minor, before);

  before = services();
  read(target, memory.address() + 2 * kPage);
  expect_one_more(FaultKind::zero_page, before);

  // A range counts as its most expensive page.
  before = services();
  memory.data()[4 * kPage] = 1;
  write(target, memory.address() + 4 * kPage, 2 * kPage);
  expect_one_more(FaultKind::minor, before);

  // Each service is in the histogram.
  const Counters counters = domain_->counters();
  EXPECT_EQ(counters.num_page_faults, 4U);
  const auto sums = services();
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), uint64_t{0}), counters.num_page_faults);
  EXPECT_GE(counters.fault_service_ns_total, counters.fault_service_ns_max);
  EXPECT_GT(counters.fault_service_ns_max, 0U);
}

/// If nothing can be swapped out, the cheaper query gives the same result.
TEST(PageSurveyor, SaysTheSameWithoutSwap) {
  const Mapping memory(6);
  memory.data()[0] = 1;
  ASSERT_EQ(madvise(memory.data() + 2 * kPage, kPage, MADV_POPULATE_READ), 0);  // the zero page
  ASSERT_EQ(munmap(memory.data() + 4 * kPage, kPage), 0);
  PageSurveyor surveyor;
  for (size_t page = 0; page < 5; ++page) {
    for (size_t pages = 1; pages <= 2; ++pages) {
      for (const bool write : {false, true}) {
        const uint64_t address = memory.address() + page * kPage;
        const Survey with = surveyor.look(address, pages, write);
        const Survey without = surveyor.survey_without_swap(address, pages, write);
        EXPECT_EQ(without.kind, with.kind) << page << " " << pages << " " << write;
        EXPECT_EQ(without.is_slow, with.is_slow) << page << " " << pages << " " << write;
        EXPECT_EQ(without.backing, with.backing) << page << " " << pages << " " << write;
      }
    }
  }
}

TEST_F(FaultStatistics, HugePages) {
  std::string mode;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), mode);
  if (mode.empty() || mode.find("[never]") != mode.npos) GTEST_SKIP() << "no transparent huge pages here";
  const Pieces memory(8);
  ASSERT_EQ(madvise(memory.data(), memory.size(), MADV_HUGEPAGE), 0);
  const Target target = add(memory.address(), memory.size());
  uint64_t made = 0;
  for (size_t i = 0; i < 8; ++i) {
    write(target, reinterpret_cast<uint64_t>(memory.piece(i)) + 100 * kPage);
    // If the kernel had a huge page, a neighbouring page is resident too.
    unsigned char in_core = 0;
    ASSERT_EQ(mincore(memory.piece(i) + 400 * kPage, kPage, &in_core), 0);
    made += in_core & 1U;
  }
  if (made == 0) GTEST_SKIP() << "the kernel had no huge page to give";
  EXPECT_GT(services()[static_cast<size_t>(FaultKind::huge)], 0U);
  EXPECT_LE(services()[static_cast<size_t>(FaultKind::huge)], made);
  // The other pages of the huge page are resident.
  const auto before = services();
  write(target, memory.address() + 200 * kPage);
  if (made == 8) expect_one_more(FaultKind::present, before);
  EXPECT_EQ(memory.data()[200 * kPage], 1);
}

TEST_F(FaultStatistics, FilesOnDisk) {
  const int file = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  constexpr uint64_t kPages = 64;
  const std::vector<uint8_t> bytes(kPages * kPage, 0x3c);
  ASSERT_EQ(::write(file, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  ASSERT_EQ(fsync(file), 0);
  ASSERT_EQ(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
  auto* const data = static_cast<uint8_t*>(
      mmap(low_address(bytes.size()), bytes.size(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  ASSERT_NE(data, MAP_FAILED);
  const auto address = reinterpret_cast<uint64_t>(data);
  const Target target = add(address, bytes.size());
  std::array<unsigned char, kPages> in_core{};
  ASSERT_EQ(mincore(data, bytes.size(), in_core.data()), 0);
  const bool is_out =
      std::none_of(in_core.begin(), in_core.end(), [](unsigned char page) { return (page & 1) != 0; });
  if (is_out) {
    const auto before = services();
    std::array<uint8_t, 8> back{};
    ASSERT_EQ(read_all(*session_, {target.key, 1, kRemoteRead}, address, back), Outcome::done);
    EXPECT_EQ(back[7], 0x3c);
    expect_one_more(FaultKind::file, before);
  }
  // A page that is in the page cache but not in the page tables.
  ASSERT_EQ(pread(file, in_core.data(), 1, (kPages - 1) * kPage), 1);
  ASSERT_EQ(madvise(data, bytes.size(), MADV_DONTNEED), 0);
  const auto before = services();
  read(target, address + (kPages - 1) * kPage);
  const auto after = services();
  EXPECT_EQ(after[static_cast<size_t>(FaultKind::file)], before[static_cast<size_t>(FaultKind::file)]);
  EXPECT_EQ(after[static_cast<size_t>(FaultKind::minor)], before[static_cast<size_t>(FaultKind::minor)] + 1);
  EXPECT_EQ(domain_->deregister_region(target.key), 0);
  EXPECT_EQ(munmap(data, bytes.size()), 0);
  EXPECT_EQ(close(file), 0);
  if (!is_out) GTEST_SKIP() << "the file system under the working directory keeps its pages in memory";
}

TEST_F(FaultStatistics, Swap) {
  std::ifstream swaps("/proc/swaps");
  std::string line;
  if (!std::getline(swaps, line) || !std::getline(swaps, line)) GTEST_SKIP() << "no swap here";
  constexpr uint64_t kPages = 16;
  const Mapping memory(kPages);
  const Target target = add(memory.address(), memory.size());
  std::memset(memory.data(), 0x4d, memory.size());
  ASSERT_EQ(madvise(memory.data(), memory.size(), MADV_PAGEOUT), 0);
  std::array<unsigned char, kPages> in_core{};
  ASSERT_EQ(mincore(memory.data(), memory.size(), in_core.data()), 0);
  if ((in_core[5] & 1) != 0) GTEST_SKIP() << "the kernel kept the page in memory";
  const auto before = services();
  std::array<uint8_t, 8> back{};
  ASSERT_EQ(read_all(*session_, {target.key, 1, kRemoteRead}, memory.address() + 5 * kPage, back),
            Outcome::done);
  EXPECT_EQ(back[0], 0x4d);
  expect_one_more(FaultKind::swap, before);
}

}  // namespace
}  // namespace faultline::odp::test::fault_statistics_test
