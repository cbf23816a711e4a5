// SPDX-License-Identifier: BSD-3-Clause
#include "odp/pins/pin_table.hpp"

#include <array>
#include <cstring>
#include <memory>

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "odp/pins/pin_slots.hpp"
#include "stack/base/unique_fd.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::pin_table_test {
namespace {

constexpr uint64_t kLongAgo = 1;
constexpr uint64_t kMay = 1'000;  ///< pins made before this time may be evicted

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

// The kernel ends a ring some milliseconds after it was closed, and interrupts the thread that made it then:
// epoll_wait is never restarted (signal(7)).
TEST(PinSlots, ATryDoesNotInterruptTheProgram) {
  const UniqueFd nothing(epoll_create1(EPOLL_CLOEXEC));
  ASSERT_TRUE(nothing);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(PinSlots::try_once(), 0);
    epoll_event event;
    ASSERT_EQ(epoll_wait(nothing.get(), &event, 1, 100), 0) << std::strerror(errno);
  }
}

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

/// The search uses the region or the pin table, whichever is shorter.
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

TEST(PinTable, WhatWaitsIsPinnedByGranules) {
  Fixture fixture(64);
  ASSERT_TRUE(fixture.ready);
  CounterCells& counters = fixture.counters;
  fixture.pins.pin_pages(fixture.region, {2, 1}, kLongAgo, kMay);
  for (size_t page = 0; page < 20; ++page) fixture.pins.pin_later(fixture.region, {page, 1}, kLongAgo + page);
  EXPECT_EQ(counters.pinned_bytes.get(), kPageBytes);
  EXPECT_EQ(counters.unpinned_bytes.get(), 19 * kPageBytes);
  EXPECT_EQ(fixture.region.pin_records, 3U) << "one more of each granule";
  fixture.pins.pin_waiting(kLongAgo);
  EXPECT_EQ(counters.unpinned_bytes.get(), 19 * kPageBytes) << "none has waited so long";
  fixture.pins.pin_waiting(kLongAgo + 16);
  EXPECT_EQ(counters.unpinned_bytes.get(), 4 * kPageBytes) << "the second granule came later";
  EXPECT_EQ(counters.pinned_bytes.get(), 16 * kPageBytes);
  fixture.pins.pin_waiting(kMay);
  EXPECT_EQ(counters.unpinned_bytes.get(), 0U);
  EXPECT_EQ(counters.pinned_bytes.get(), 20 * kPageBytes);
  // Pinned pages are not pinned again.
  fixture.pins.pin_pages(fixture.region, {0, 20}, kMay, kMay);
  EXPECT_EQ(counters.pinned_bytes.get(), 20 * kPageBytes);
  EXPECT_EQ(counters.pin_fallbacks.get(), 0U);
  fixture.pins.unpin_pages(fixture.region, {0, 64});
  EXPECT_EQ(counters.pinned_bytes.get(), 0U);
}

TEST(PinTable, FewWaitAtATime) {
  Fixture fixture(64);
  ASSERT_TRUE(fixture.ready);
  std::array<std::unique_ptr<Fixture>, 3> others;
  Region& region = fixture.region;
  CounterCells& counters = fixture.counters;
  for (auto& other : others) {
    other = std::make_unique<Fixture>(64);
    ASSERT_TRUE(other->ready);
    for (size_t page = 0; page < 64; page += 16) fixture.pins.pin_later(other->region, {page, 1}, kLongAgo);
  }
  EXPECT_EQ(counters.unpinned_bytes.get(), 8 * kPageBytes);
  EXPECT_EQ(counters.pinned_bytes.get(), 4 * kPageBytes);
  // Neither a destroyed region nor invalidated pages are pinned afterwards.
  for (auto& other : others) fixture.pins.unpin_all(other->region);
  EXPECT_EQ(counters.unpinned_bytes.get() + counters.pinned_bytes.get(), 0U);
  for (auto& other : others) other.reset();
  fixture.pins.pin_later(region, {0, 8}, kLongAgo);
  fixture.pins.unpin_pages(region, {4, 1});
  EXPECT_EQ(counters.unpinned_bytes.get(), 0U);
  fixture.pins.pin_waiting(kMay);
  EXPECT_EQ(counters.pinned_bytes.get(), 0U);
}

TEST(PinTable, WhatWaitsCountsAgainstTheBudgetAndCanBeEvicted) {
  Fixture fixture(16);
  ASSERT_TRUE(fixture.ready);
  CounterCells& counters = fixture.counters;
  fixture.make_resident(0, 48);
  fixture.pins.pin_later(fixture.region, {0, 16}, kLongAgo);
  fixture.pins.pin_later(fixture.region, {16, 1}, kLongAgo);
  EXPECT_EQ(counters.unpinned_bytes.get(), 16 * kPageBytes);
  fixture.pins.pin_pages(fixture.region, {32, 16}, kMay, kMay);
  EXPECT_EQ(counters.pin_evictions.get(), 1U);
  EXPECT_EQ(counters.unpinned_bytes.get(), 0U);
  EXPECT_EQ(fixture.region.pages.state(0), PageState::absent);
  fixture.pins.pin_waiting(kMay);
  EXPECT_EQ(counters.pinned_bytes.get(), 16 * kPageBytes);
}

/// A page whose deferred pin fails is treated like other memory that cannot be pinned: after a while it is
/// absent again.
TEST(PinTable, WhatCannotBePinnedWhenItsTimeComesExpires) {
  Fixture fixture(64);
  ASSERT_TRUE(fixture.ready);
  fixture.make_resident(0, 16);
  fixture.pins.pin_later(fixture.region, {0, 4}, kLongAgo);
  fixture.pins.expire_unpinned(kMay);
  EXPECT_EQ(fixture.region.pages.state(0), PageState::writable) << "it has its pin to come";
  ASSERT_EQ(mprotect(fixture.memory.data(), 4 * kPageBytes, PROT_READ), 0);
  fixture.pins.pin_waiting(kMay);
  EXPECT_EQ(fixture.counters.pin_fallbacks.get(), 1U);
  EXPECT_EQ(fixture.counters.unpinned_bytes.get(), 4 * kPageBytes);
  fixture.pins.expire_unpinned(kMay);
  EXPECT_EQ(fixture.counters.unpinned_bytes.get(), 0U);
  EXPECT_EQ(fixture.region.pages.state(0), PageState::absent);
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
}  // namespace faultline::odp::pin_table_test
