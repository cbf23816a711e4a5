// SPDX-License-Identifier: BSD-3-Clause
#include "odp/pin_table.hpp"

#include <array>
#include <cstring>
#include <memory>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp {
namespace {

constexpr uint64_t kLongAgo = 1;
constexpr uint64_t kMay = 1'000;  ///< pins made before this may be evicted

struct Fixture {
  explicit Fixture(uint64_t budget_pages) : memory(64), pins(budget_pages * kPageBytes, counters) {
    std::memset(memory.data(), 1, memory.size());
    region.on_demand = true;
    region.address = memory.address();
    region.length_bytes = memory.size();
    region.first_page = memory.address() >> kPageShift;
    ready = pins.allocate() && region.pages.allocate(64) && region.granule_pins.allocate(4) &&
            region.granule_used.allocate(4);
  }
  ~Fixture() { pins.unpin_all(region); }

  void make_resident(size_t first, size_t count) {
    for (size_t page = first; page < first + count; ++page) {
      region.pages.apply(page, PageEvent::begin_fault);
      region.pages.apply(page, PageEvent::publish_write);
    }
    region.resident_pages += count;
    counters.num_odp_mr_pages.add(count);
  }

  test::Mapping memory;
  CounterCells counters;
  PinTable pins;
  Region region;
  bool ready = false;
};

TEST(PinTable, PinsEachPageOnce) {
  Fixture fixture(64);
  ASSERT_TRUE(fixture.ready);
  fixture.pins.pin_pages(fixture.region, {3, 20}, kLongAgo, kMay);
  EXPECT_EQ(fixture.counters.pinned_bytes.get(), 20 * kPageBytes);
  fixture.pins.pin_pages(fixture.region, {0, 40}, kLongAgo, kMay);
  EXPECT_EQ(fixture.counters.pinned_bytes.get(), 40 * kPageBytes);
  fixture.pins.unpin_pages(fixture.region, {0, 64});
  EXPECT_EQ(fixture.counters.pinned_bytes.get(), 0U);
  EXPECT_EQ(fixture.counters.pin_fallbacks.get(), 0U);
}

/// Region and pin table are searched from whichever end is shorter.
TEST(PinTable, LetsGoOfAllThatARegionHas) {
  for (const size_t runs : {size_t{1}, size_t{30}}) {
    Fixture fixture(64);
    Fixture other(64);
    ASSERT_TRUE(fixture.ready && other.ready);
    for (size_t run = 0; run < runs; ++run)
      fixture.pins.pin_pages(fixture.region, {2 * run, 1}, kLongAgo, kMay);
    fixture.pins.pin_pages(other.region, {0, 1}, kLongAgo, kMay);
    EXPECT_EQ(fixture.region.pin_records, runs);
    fixture.pins.unpin_all(fixture.region);
    EXPECT_EQ(fixture.region.pin_records, 0U);
    EXPECT_EQ(fixture.counters.pinned_bytes.get(), kPageBytes) << "another region's stay";
    for (size_t granule = 0; granule < 4; ++granule) EXPECT_EQ(fixture.region.granule_pins[granule], 0U);
    fixture.pins.unpin_all(other.region);
    EXPECT_EQ(fixture.counters.pinned_bytes.get(), 0U);
  }
}

TEST(PinTable, EvictsTheUnusedGranuleFirst) {
  Fixture fixture(48);
  ASSERT_TRUE(fixture.ready);
  for (size_t granule = 0; granule < 3; ++granule) {
    fixture.make_resident(granule * kGranulePages, kGranulePages);
    fixture.pins.pin_pages(fixture.region, {granule * kGranulePages, kGranulePages}, kLongAgo, kMay);
  }
  EXPECT_TRUE(fixture.pins.tracks_use());
  fixture.region.granule_used[0] = 1;
  fixture.region.granule_used[2] = 1;
  fixture.pins.pin_pages(fixture.region, {48, 16}, kMay, kMay);
  EXPECT_EQ(fixture.counters.pin_evictions.get(), 1U);
  EXPECT_EQ(fixture.counters.pinned_bytes.get(), 48 * kPageBytes);
  EXPECT_EQ(fixture.region.pages.state(0), PageState::writable);
  EXPECT_EQ(fixture.region.pages.state(16), PageState::absent);
  EXPECT_EQ(fixture.region.pages.state(32), PageState::writable);
  EXPECT_EQ(fixture.counters.num_odp_mr_pages.get(), 32U);
}

TEST(PinTable, FallsBackRatherThanEvictWhatIsYoung) {
  Fixture fixture(16);
  ASSERT_TRUE(fixture.ready);
  fixture.make_resident(0, 16);
  fixture.pins.pin_pages(fixture.region, {0, 16}, kMay + 1, kMay);
  fixture.pins.pin_pages(fixture.region, {16, 4}, kMay + 2, kMay);
  EXPECT_EQ(fixture.counters.pin_evictions.get(), 0U);
  EXPECT_EQ(fixture.counters.pin_fallbacks.get(), 1U);
  EXPECT_EQ(fixture.region.pages.state(0), PageState::writable);
  EXPECT_EQ(fixture.counters.pinned_bytes.get(), 16 * kPageBytes);
}

TEST(PinTable, BudgetOfNothingPinsNothing) {
  Fixture fixture(0);
  ASSERT_TRUE(fixture.ready);
  fixture.pins.pin_pages(fixture.region, {0, 4}, kLongAgo, kMay);
  EXPECT_EQ(fixture.counters.pinned_bytes.get(), 0U);
  EXPECT_EQ(fixture.counters.pin_fallbacks.get(), 1U);
}

TEST(PinTable, MemoryThatCannotBePinnedFallsBack) {
  Fixture fixture(64);
  ASSERT_TRUE(fixture.ready);
  ASSERT_EQ(mprotect(fixture.memory.data(), 4 * kPageBytes, PROT_READ), 0);
  fixture.pins.pin_pages(fixture.region, {0, 16}, kLongAgo, kMay);
  EXPECT_EQ(fixture.counters.pin_fallbacks.get(), 1U);
  EXPECT_EQ(fixture.counters.pinned_bytes.get(), 0U);
  fixture.pins.pin_pages(fixture.region, {16, 16}, kLongAgo, kMay);
  EXPECT_EQ(fixture.counters.pinned_bytes.get(), 16 * kPageBytes);
}

TEST(PinTable, APinnedPageIsTheSamePageAfterTheProgramsDontneed) {
  // The pin must not make the program's own madvise fail, as mlock would.
  Fixture fixture(64);
  ASSERT_TRUE(fixture.ready);
  fixture.pins.pin_pages(fixture.region, {0, 1}, kLongAgo, kMay);
  ASSERT_EQ(madvise(fixture.memory.data(), kPageBytes, MADV_DONTNEED), 0);
  EXPECT_EQ(fixture.memory.data()[0], 0);
}

}  // namespace
}  // namespace faultline::odp
