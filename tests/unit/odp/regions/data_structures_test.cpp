// SPDX-License-Identifier: BSD-3-Clause
// The basic data structures: page map, key table, range counts, gate and token, reader stripes, background
// queue, swap space.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "odp/copy/quiescence.hpp"
#include "odp/pager/fault_queue.hpp"
#include "odp/pager/swap_space.hpp"
#include "odp/regions/key_table.hpp"
#include "odp/regions/page_map.hpp"
#include "odp/regions/range_counts.hpp"
#include "odp/regions/region_index.hpp"

namespace faultline::odp::data_structures_test {
namespace {

TEST(PageMap, OnlyAFaultInServiceCanBePublished) {
  for (size_t i = 0; i < kPageStates; ++i) {
    const auto state = static_cast<PageState>(i);
    if (state == PageState::faulting) continue;
    EXPECT_EQ(next_state(state, PageEvent::publish_read), state);
    EXPECT_EQ(next_state(state, PageEvent::publish_write), state);
  }
  EXPECT_EQ(next_state(PageState::faulting, PageEvent::publish_read), PageState::readable);
  EXPECT_EQ(next_state(PageState::faulting, PageEvent::publish_write), PageState::writable);
}

TEST(PageMap, DeadStaysDeadAndDropEndsAccess) {
  for (size_t i = 0; i < kPageEvents; ++i)
    EXPECT_EQ(next_state(PageState::dead, static_cast<PageEvent>(i)), PageState::dead);
  for (size_t i = 0; i < kPageStates; ++i) {
    const auto state = static_cast<PageState>(i);
    EXPECT_EQ(next_state(state, PageEvent::kill),
              state == PageState::doomed ? PageState::doomed : PageState::dead);
    EXPECT_FALSE(is_resident(next_state(state, PageEvent::drop)));
    EXPECT_FALSE(allows(next_state(state, PageEvent::make_copy_on_write), true));
  }
}

TEST(PageMap, HowItsCallEndsDecidesOfTheDoomedAlone) {
  for (size_t i = 0; i < kPageStates; ++i) {
    const auto state = static_cast<PageState>(i);
    const bool is_doomed = state == PageState::doomed;
    for (const PageEvent begin : {PageEvent::doom, PageEvent::suspend})
      EXPECT_EQ(next_state(state, begin), state == PageState::dead ? PageState::dead : PageState::doomed);
    EXPECT_EQ(next_state(state, PageEvent::bury), is_doomed ? PageState::dead : state);
    EXPECT_EQ(next_state(state, PageEvent::revive), is_doomed ? PageState::absent : state);
  }
  for (size_t i = 0; i < kPageEvents; ++i) {
    const auto event = static_cast<PageEvent>(i);
    if (event == PageEvent::bury || event == PageEvent::revive) continue;
    EXPECT_EQ(next_state(PageState::doomed, event), PageState::doomed);
  }
}

TEST(PageMap, CountsTheResidentPagesThatLeave) {
  PageMap map;
  ASSERT_TRUE(map.allocate(8));
  for (const size_t page : {1U, 2U, 5U}) {
    map.apply(page, PageEvent::begin_fault);
    map.apply(page, page == 2 ? PageEvent::publish_read : PageEvent::publish_write);
  }
  EXPECT_EQ(map.apply_range(0, 8, PageEvent::make_copy_on_write), 0U);
  EXPECT_EQ(map.state(1), PageState::readable);
  EXPECT_EQ(map.apply_range(0, 3, PageEvent::drop), 2U);
  EXPECT_EQ(map.apply_range(0, 8, PageEvent::kill), 1U);
}

TEST(KeyTable, StaleAndForgedKeysFindNothing) {
  KeyTable table;
  ASSERT_TRUE(table.allocate());
  Region region;
  ASSERT_EQ(table.reserve(region), 0);
  EXPECT_EQ(table.find(region.key), nullptr) << "not published yet";
  table.publish(region);
  EXPECT_EQ(table.find(region.key), &region);
  for (uint32_t variant = 0; variant < 256; ++variant) {
    const Key other = (region.key & ~0xffU) | variant;
    if (other == region.key) continue;
    EXPECT_EQ(table.find(other), nullptr);
  }
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(~0U), nullptr);
  EXPECT_EQ(table.withdraw(region.key ^ 1), nullptr);
  EXPECT_EQ(table.withdraw(region.key), &region);
  EXPECT_EQ(table.withdraw(region.key), nullptr);
  EXPECT_EQ(table.find(region.key), nullptr);
  table.release(region.key);
  EXPECT_EQ(table.find(region.key), nullptr);
}

TEST(KeyTable, KeysAreDistinctAndNotSequential) {
  KeyTable table;
  ASSERT_TRUE(table.allocate());
  constexpr size_t kCount = 40'000;
  std::vector<std::unique_ptr<Region>> regions;
  std::set<uint32_t> indices;
  size_t neighbours = 0;
  for (size_t i = 0; i < kCount; ++i) {
    regions.push_back(std::make_unique<Region>());
    ASSERT_EQ(table.reserve(*regions.back()), 0);
    table.publish(*regions.back());
    const uint32_t index = regions.back()->key >> 8;
    EXPECT_NE(index, 0U);
    EXPECT_TRUE(indices.insert(index).second);
    if (i > 0 && index - (regions[i - 1]->key >> 8) + 1 <= 2) ++neighbours;
  }
  // Random choice gives a handful in a window of 65,536 or more.
  EXPECT_LT(neighbours, kCount / 100);
  for (const auto& region : regions) EXPECT_EQ(table.find(region->key), region.get());
}

TEST(KeyTable, AnIndexNeverComesBackWithItsLastVariant) {
  KeyTable table;
  ASSERT_TRUE(table.allocate());
  std::map<uint32_t, uint32_t> last;
  for (int i = 0; i < 300'000; ++i) {
    Region region;
    ASSERT_EQ(table.reserve(region), 0);
    const auto [it, fresh] = last.try_emplace(region.key >> 8, region.key);
    if (!fresh) {
      ASSERT_NE(it->second, region.key);
      it->second = region.key;
    }
    table.release(region.key);
  }
  EXPECT_LE(last.size(), size_t{KeyTable::kMinWindow});
}

/// A thread that has found the old region may still hold it.
TEST(KeyTable, AnIndexIsKeptUntilItIsReleased) {
  KeyTable table;
  ASSERT_TRUE(table.allocate());
  Region gone;
  ASSERT_EQ(table.reserve(gone), 0);
  table.publish(gone);
  ASSERT_EQ(table.withdraw(gone.key), &gone);
  Region other;
  // Enough draws to hit each index of the window several times.
  for (uint32_t i = 0; i < 8 * KeyTable::kMinWindow; ++i) {
    ASSERT_EQ(table.reserve(other), 0);
    table.release(other.key);
    ASSERT_NE(other.key >> 8, gone.key >> 8);
  }
  table.release(gone.key);
}

TEST(PageMap, ARangeMovesAsItsPagesWould) {
  constexpr size_t kPages = 100;
  std::mt19937 random(16);
  PageMap map;
  ASSERT_TRUE(map.allocate(kPages));
  std::array<PageState, kPages> model{};
  for (int step = 0; step < 50'000; ++step) {
    const size_t first = random() % kPages;
    const size_t count = random() % (kPages - first + 1);
    const auto event = static_cast<PageEvent>(random() % kPageEvents);
    PageMap::Change expected;
    bool is_loss = false;
    for (size_t page = first; page < first + count; ++page) {
      const PageState before = model[page];
      model[page] = next_state(before, event);
      if (model[page] == before) continue;
      ++expected.pages;
      if (is_resident(before) && !is_resident(model[page])) ++expected.gone;
      is_loss |= before == PageState::writable;
    }
    const uint64_t losses = PageMap::losses().load();
    const PageMap::Change change = map.change_range(first, count, event);
    ASSERT_EQ(change.pages, expected.pages) << step;
    ASSERT_EQ(change.gone, expected.gone) << step;
    ASSERT_EQ(PageMap::losses().load() != losses, is_loss) << step;
    for (size_t page = 0; page < kPages; ++page) ASSERT_EQ(map.state(page), model[page]) << step;
    if (step % 100 != 99) continue;
    // Dead pages never become usable again, so the test starts a new map.
    map = PageMap();
    ASSERT_TRUE(map.allocate(kPages));
    model = {};
  }
}

TEST(RangeCounts, AgreesWithAPlainModel) {
  constexpr uint64_t kSpan = 64;
  std::mt19937 random(5);
  RangeCounts counts;
  std::vector<uint32_t> model(kSpan, 0);
  std::vector<std::pair<uint64_t, uint64_t>> live;
  for (int step = 0; step < 20'000; ++step) {
    if (live.empty() || random() % 2 == 0) {
      const uint64_t start = random() % (kSpan - 1);
      const uint64_t end = start + 1 + random() % (kSpan - start - 1);
      counts.add(start, end);
      for (uint64_t i = start; i < end; ++i) ++model[i];
      live.emplace_back(start, end);
      continue;
    }
    const size_t pick = random() % live.size();
    const auto [start, end] = live[pick];
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
    std::vector<bool> expected(kSpan, false);
    for (uint64_t i = start; i < end; ++i) expected[i] = --model[i] == 0;
    std::vector<bool> unused(kSpan, false);
    counts.remove(start, end, [&](uint64_t from, uint64_t to) {
      for (uint64_t i = from; i < to; ++i) unused[i] = true;
    });
    ASSERT_EQ(unused, expected) << step;
    const uint64_t from = random() % (kSpan - 1);
    const uint64_t to = from + 1 + random() % (kSpan - from - 1);
    std::vector<bool> used(kSpan, false);
    counts.for_each_used(from, to, [&](uint64_t first, uint64_t last) {
      for (uint64_t i = first; i < last; ++i) used[i] = true;
    });
    for (uint64_t i = 0; i < kSpan; ++i) ASSERT_EQ(used[i], i >= from && i < to && model[i] != 0) << step;
    ASSERT_EQ(counts.any_in(from, to), std::find(used.begin(), used.end(), true) != used.end());
  }
}

TEST(Region, BindsNoWindowOnceItIsClosed) {
  Region region;
  ASSERT_TRUE(region.bind_one());
  EXPECT_FALSE(region.close_to_windows()) << "a window is bound";
  region.unbind_one();
  EXPECT_TRUE(region.close_to_windows());
  EXPECT_FALSE(region.bind_one());
  EXPECT_FALSE(region.bind_one()) << "an attempt that was refused leaves it closed";
  EXPECT_FALSE(region.close_to_windows()) << "of two that close it one succeeds";
}

TEST(RegionIndex, FindsTheOverlapOfEachRegion) {
  RegionIndex index;
  ASSERT_TRUE(index.allocate());
  std::array<Region, 3> regions;
  for (size_t i = 0; i < regions.size(); ++i) {
    regions[i].address = 0x10000 + i * 0x2000 + 0x10;
    regions[i].length_bytes = 0x3000;
    regions[i].first_page = regions[i].address >> kPageShift;
    ASSERT_TRUE(index.insert(regions[i]));
  }
  index.remove(regions[0]);
  ASSERT_TRUE(index.insert(regions[0]));
  std::map<const Region*, std::pair<size_t, size_t>> seen;
  index.for_each_in(0x13000, 0x14000, [&](Region& region, PageRange pages) {
    seen[&region] = {pages.first, pages.count};
  });
  // Regions cover pages 0x10..0x13, 0x12..0x15 and 0x14..0x17.
  EXPECT_EQ(seen.size(), 2U);
  EXPECT_EQ((seen[&regions[0]]), (std::pair<size_t, size_t>{3, 1}));
  EXPECT_EQ((seen[&regions[1]]), (std::pair<size_t, size_t>{1, 1}));
}

TEST(RegionIndex, FindsWhatAPlainListFindsAndItsFilterMissesNothing) {
  std::mt19937_64 random(7);
  RegionIndex index;
  ASSERT_TRUE(index.allocate());
  std::vector<std::unique_ptr<Region>> regions;
  const auto any_range = [&] {
    // From one page to some GiB, within a few TiB: adjacent, overlapping and distant ranges.
    const uint64_t pages = uint64_t{1} << random() % 21;
    const uint64_t first = random() % 3 == 0 ? random() % (uint64_t{1} << 30) : 5'000 + random() % 9'000;
    return AddressRange{first << kPageShift, (first + 1 + random() % pages) << kPageShift};
  };
  for (int step = 0; step < 3'000; ++step) {
    if (regions.size() < 60 && random() % 3 != 0) {
      const AddressRange range = any_range();
      auto region = std::make_unique<Region>();
      region->address = range.start + random() % kPageBytes;
      region->length_bytes = range.end - region->address - random() % 7;
      region->first_page = region->address >> kPageShift;
      ASSERT_TRUE(index.insert(*region));
      regions.push_back(std::move(region));
    } else if (!regions.empty()) {
      const size_t which = random() % regions.size();
      index.remove(*regions[which]);
      regions.erase(regions.begin() + static_cast<long>(which));
    }
    const AddressRange asked = any_range();
    std::map<const Region*, std::pair<size_t, size_t>> expected;
    for (const auto& region : regions) {
      const uint64_t from = std::max(asked.start, region->start_page_address());
      const uint64_t to = std::min(asked.end, region->end_page_address());
      if (from < to)
        expected[region.get()] = {(from >> kPageShift) - region->first_page, (to - from) >> kPageShift};
    }
    std::map<const Region*, std::pair<size_t, size_t>> seen;
    index.for_each_in(asked.start, asked.end, [&](Region& region, PageRange pages) {
      seen[&region] = {pages.first, pages.count};
    });
    ASSERT_EQ(seen, expected) << step;
    ASSERT_TRUE(expected.empty() || index.may_have(asked)) << step;
  }
  for (const auto& region : regions) index.remove(*region);
  EXPECT_FALSE(index.may_have({0, uint64_t{1} << 34}));
  EXPECT_EQ(index.any(), nullptr);
}

TEST(Quiescence, AWaitForCopiesNeedsNoTurnToEnd) {
  prepare_restartable_copies();
  if (!has_restartable_copies()) GTEST_SKIP() << "no restartable sequences here (rseq, membarrier)";
  Quiescence quiescence;
  Quiescence::Slot* const slot = quiescence.attach();
  std::atomic<int> state{0};
  std::thread engine([&] {
    static_cast<void>(quiescence.enter(*slot));
    state = 1;
    while (state != 2) std::this_thread::yield();
    quiescence.leave(*slot);
  });
  while (state != 1) std::this_thread::yield();
  revoke_tickets();
  quiescence.wait_for_copies(quiescence.advance());  // while the turn is still open
  EXPECT_EQ(state.load(), 1);
  state = 2;
  engine.join();
}

TEST(Quiescence, WithoutRestartsAWaitForCopiesIsForOthersTurnsAlone) {
  disable_restartable_copies(true);
  Quiescence quiescence;
  Quiescence::Slot* const own = quiescence.attach();
  Quiescence::Slot* const other = quiescence.attach();
  static_cast<void>(quiescence.enter(*own));
  quiescence.wait_for_copies(quiescence.advance());  // its own turn, interrupted by a signal handler
  quiescence.leave(*own);
  std::atomic<int> state{0};
  std::atomic<bool> waited{false};
  std::thread engine([&] {
    static_cast<void>(quiescence.enter(*other));
    state = 1;
    while (state != 2) std::this_thread::yield();
    quiescence.suspend_own(1);  // in a call of the program on which the waiter waits
    while (!waited) std::this_thread::yield();
    quiescence.suspend_own(-1);
    quiescence.leave(*other);
  });
  while (state != 1) std::this_thread::yield();
  std::thread waiter([&] {
    quiescence.wait_for_copies(quiescence.advance());
    EXPECT_EQ(state.load(), 2);
    waited = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(waited) << "the other's turn goes on";
  state = 2;
  waiter.join();
  engine.join();
  disable_restartable_copies(false);
}

TEST(Quiescence, WaitsForOnlineSessionsOnly) {
  Quiescence quiescence;
  Quiescence::Slot* online = quiescence.attach();
  Quiescence::Slot* offline = quiescence.attach();
  ASSERT_NE(online, offline);
  EXPECT_FALSE(quiescence.enter(*online));
  EXPECT_FALSE(quiescence.enter(*offline));
  quiescence.leave(*offline);

  std::atomic<bool> raised{false};
  std::atomic<bool> returned{false};
  std::thread monitor([&] {
    const uint64_t token = quiescence.raise_gate();
    raised = true;
    quiescence.wait_for(token);
    returned = true;
  });
  while (!raised) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(returned);
  EXPECT_TRUE(quiescence.enter(*offline)) << "coming online sees the gate";
  quiescence.leave(*offline);
  EXPECT_TRUE(quiescence.enter(*online));
  monitor.join();
  quiescence.lower_gate();
  EXPECT_FALSE(quiescence.enter(*online));
  quiescence.leave(*online);
  quiescence.wait_for(quiescence.advance());
}

TEST(Quiescence, NothingIsUsedAfterTheWait) {
  // A published cell is withdrawn, waited for, and poisoned. An engine that switches between online and
  // offline must never read poison.
  Quiescence quiescence;
  std::atomic<int*> published{nullptr};
  std::atomic<bool> stop{false};
  std::atomic<int> bad{0};
  std::vector<std::thread> engines;
  for (int i = 0; i < 2; ++i) {
    engines.emplace_back([&, i] {
      Quiescence::Slot* slot = quiescence.attach();
      for (unsigned turn = 0; !stop; ++turn) {
        (void)quiescence.enter(*slot);
        if (const int* cell = published.load(std::memory_order_acquire); cell != nullptr && *cell != 7) ++bad;
        if (i == 0 || turn % 3 == 0) quiescence.leave(*slot);
      }
      quiescence.detach(*slot);
    });
  }
  for (int round = 0; round < 300; ++round) {
    int cell = 7;
    published.store(&cell, std::memory_order_seq_cst);
    std::this_thread::yield();
    published.store(nullptr, std::memory_order_seq_cst);
    quiescence.wait_for(quiescence.advance());
    cell = 0;
  }
  stop = true;
  for (std::thread& engine : engines) engine.join();
  EXPECT_EQ(bad.load(), 0);
}

TEST(ReaderStripes, WaitReturnsAfterTheGuards) {
  ReaderStripes stripes;
  auto guard = std::make_unique<ReaderStripes::Guard>(stripes);
  std::atomic<bool> returned{false};
  std::thread waiter([&] {
    stripes.wait();
    returned = true;
  });
  for (int i = 0; i < 100; ++i) {
    std::this_thread::yield();
    ASSERT_FALSE(returned);
  }
  guard.reset();
  waiter.join();
  EXPECT_TRUE(returned);
}

TEST(BackgroundQueue, IsBoundedAndInOrder) {
  BackgroundQueue queue;
  for (uint64_t i = 0; i < BackgroundQueue::kCapacity; ++i)
    ASSERT_TRUE(queue.try_push(
        {.request = {.target = {}, .va = i, .length_bytes = 1, .waiter = {}}, .wait = nullptr}));
  EXPECT_FALSE(queue.try_push({}));
  BackgroundRequest request;
  for (uint64_t i = 0; i < BackgroundQueue::kCapacity; ++i) {
    ASSERT_TRUE(queue.try_pop(request));
    ASSERT_EQ(request.request.va, i);
  }
  EXPECT_FALSE(queue.try_pop(request));
  EXPECT_TRUE(queue.try_push({}));
}

TEST(SwapSpace, IsInMemoryWhereAllOfItIs) {
  const std::string titles = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
  const std::string zram = "/dev/zram0                              partition\t262140\t\t0\t\t32767\n";
  const std::string disk = "/dev/vda2                               partition\t999420\t\t1024\t\t-2\n";
  const std::string file = "/zram/swapfile                          file\t\t999420\t\t0\t\t-3\n";
  const struct {
    std::string list;
    bool in_memory;
  } cases[] = {{titles, false},
               {titles + zram, true},
               {titles + zram + zram, true},
               {titles + disk, false},
               {titles + zram + disk, false},
               {titles + file, false},
               {"", false}};
  const std::filesystem::path list =
      std::filesystem::temp_directory_path() / ("swaps-" + std::to_string(getpid()));
  for (const auto& c : cases) {
    std::ofstream(list) << c.list;
    SwapSpace space(list);
    EXPECT_FALSE(space.is_in_memory(1)) << "before any look";
    space.look(1);
    EXPECT_EQ(space.is_in_memory(1), c.in_memory) << c.list;
    EXPECT_FALSE(space.is_in_memory(2'000'000'000)) << "an old look";
  }
  std::filesystem::remove(list);
  SwapSpace none(list);
  none.look(1);
  EXPECT_FALSE(none.is_in_memory(1));
}

TEST(SwapSpace, IsAbsentWhereTheKernelListsNone) {
  std::ifstream swaps("/proc/swaps");
  std::string line;
  size_t lines = 0;
  while (std::getline(swaps, line)) ++lines;
  SwapSpace space;
  EXPECT_EQ(space.is_absent(1), lines <= 1);
  EXPECT_EQ(space.is_absent(2), lines <= 1) << "as of the look before";
}

}  // namespace
}  // namespace faultline::odp::data_structures_test
