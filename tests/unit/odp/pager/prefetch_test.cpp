// SPDX-License-Identifier: BSD-3-Clause
// Advice about ranges: what it makes resident, what it returns, and that it delays no other thread.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/odp/pager/implicit_region.hpp"
#include "tests/unit/odp/pager/slow_memory.hpp"

namespace faultline::odp::test::prefetch_test {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLarge = uint64_t{64} << 20;
constexpr uint32_t kAccess = kLocalWrite | kRemoteWrite | kRemoteRead | kOnDemand;

class Prefetch : public testing::Test {
 protected:
  Key add(uint64_t address, uint64_t length_bytes, uint32_t access = kAccess,
          ProtectionDomain protection = 1) {
    const auto result = domain_->register_region({.domain = protection,
                                                  .address = address,
                                                  .length_bytes = length_bytes,
                                                  .iova = address,
                                                  .access = access});
    EXPECT_EQ(result.error, 0);
    return result.key;
  }
  Key add(const Mapping& memory, uint32_t access = kAccess) {
    return add(memory.address(), memory.size(), access);
  }

  int prefetch(std::initializer_list<PrefetchRange> ranges, PrefetchKind kind, bool wait = true,
               ProtectionDomain protection = 1) {
    return domain_->prefetch(protection, {ranges.begin(), ranges.size()}, kind, wait);
  }
  bool is_there(Key key, uint64_t va, uint64_t length_bytes, uint32_t need = kRemoteRead) {
    session_->enter();
    const Outcome outcome = session_->probe({key, 1, need}, va, length_bytes);
    session_->leave();
    return outcome == Outcome::done;
  }
  uint64_t resident_pages(Key key) {
    RegionCounters counters;
    EXPECT_TRUE(domain_->region_counters(key, counters));
    return counters.resident_pages;
  }
  /// Faults on `memory`, page by page, on a separate engine.
  bool serve_faults(Key key, uint64_t address, uint64_t pages) {
    auto session = domain_->attach_engine();
    const std::array<uint8_t, 8> bytes{1};
    bool done = true;
    for (uint64_t page = 0; page < pages; ++page)
      done &= write_all(*session, {key, 1, kRemoteWrite}, address + page * kPage, bytes) == Outcome::done;
    return done;
  }

  const std::unique_ptr<MemoryDomain> domain_ = make_domain();
  const std::unique_ptr<EngineSession> session_ = domain_->attach_engine();
};

/// Returns which pages are in the page tables (mincore(2) of private anonymous memory).
std::vector<bool> mapped_pages(const void* data, size_t pages) {
  std::vector<unsigned char> in_core(pages);
  EXPECT_EQ(mincore(const_cast<void*>(data), pages * kPage, in_core.data()), 0);
  std::vector<bool> mapped;
  for (const unsigned char page : in_core) mapped.push_back((page & 1) != 0);
  return mapped;
}

TEST_F(Prefetch, ReadsAndWritesAsAsked) {
  const Mapping memory(100);
  const Key key = add(memory);
  EXPECT_EQ(prefetch({{key, memory.address() + 10 * kPage + 5, 20 * kPage}}, PrefetchKind::read), 0);
  EXPECT_TRUE(is_there(key, memory.address() + 10 * kPage, 21 * kPage));
  EXPECT_FALSE(is_there(key, memory.address() + 10 * kPage, 1, kRemoteWrite));
  EXPECT_EQ(prefetch({{key, memory.address() + 10 * kPage, 5 * kPage}}, PrefetchKind::write), 0);
  EXPECT_TRUE(is_there(key, memory.address() + 10 * kPage, 5 * kPage, kRemoteWrite));
  EXPECT_FALSE(is_there(key, memory.address() + 15 * kPage, 1, kRemoteWrite));
  EXPECT_FALSE(is_there(key, memory.address() + 9 * kPage, 1));
  EXPECT_FALSE(is_there(key, memory.address() + 31 * kPage, 1));
  EXPECT_EQ(resident_pages(key), 21U);
  RegionCounters counters;
  ASSERT_TRUE(domain_->region_counters(key, counters));
  EXPECT_EQ(counters.page_prefetch, 26U) << "five of them twice";
  EXPECT_EQ(counters.page_faults, 0U);
  EXPECT_EQ(domain_->counters().num_prefetches_handled, 2U);
  EXPECT_EQ(domain_->counters().num_prefetch_pages, 26U);
  EXPECT_EQ(domain_->counters().num_page_faults, 0U);
}

TEST_F(Prefetch, WithoutFaultsTakesOnlyWhatIsMapped) {
  constexpr size_t kPages = 300;
  const Mapping memory(kPages);
  const Key key = add(memory);
  const auto is_touched = [](size_t page) {
    return page == 3 || (page >= 60 && page < 70) || page % 64 == 63;
  };
  size_t touched = 0;
  for (size_t page = 0; page < kPages; ++page) {
    if (!is_touched(page)) continue;
    memory.data()[page * kPage] = 1;
    ++touched;
  }
  EXPECT_EQ(prefetch({{key, memory.address(), memory.size()}}, PrefetchKind::no_fault), 0);
  EXPECT_EQ(resident_pages(key), touched);
  const std::vector<bool> mapped = mapped_pages(memory.data(), kPages);
  for (size_t page = 0; page < kPages; ++page) {
    EXPECT_EQ(mapped[page], is_touched(page)) << page;
    EXPECT_EQ(is_there(key, memory.address() + page * kPage, kPage), is_touched(page)) << page;
  }
  // If nothing is mapped there is nothing to do, and the result is success.
  ASSERT_EQ(madvise(memory.data(), memory.size(), MADV_DONTNEED), 0);
  EXPECT_EQ(prefetch({{key, memory.address(), memory.size()}}, PrefetchKind::no_fault), 0);
  EXPECT_EQ(resident_pages(key), 0U);
  // The call may also return without waiting.
  memory.data()[5 * kPage] = 1;
  EXPECT_EQ(prefetch({{key, memory.address(), memory.size()}}, PrefetchKind::no_fault, false), 0);
  EXPECT_TRUE(eventually([&] { return resident_pages(key) == 1; }));
}

TEST_F(Prefetch, WithoutFaultsInTheImplicitRegion) {
  const Pieces memory(4);
  const Key key = add_implicit(*domain_);
  // Whole children, of which one has no pages and one has its pages at the end.
  for (const uint64_t page : {uint64_t{0}, uint64_t{100}, 2 * kChildPages + 511, 3 * kChildPages})
    memory.data()[page * kPage] = 1;
  EXPECT_EQ(prefetch({{key, memory.address(), memory.size()}}, PrefetchKind::no_fault), 0);
  EXPECT_EQ(resident_pages(key), 4U);
  EXPECT_EQ(domain_->counters().num_implicit_children, 3U);
  EXPECT_TRUE(is_there(key, memory.address() + 100 * kPage, kPage));
  EXPECT_FALSE(is_there(key, memory.address() + 101 * kPage, 1));
  const std::vector<bool> mapped = mapped_pages(memory.data(), memory.size() / kPage);
  EXPECT_EQ(std::count(mapped.begin(), mapped.end(), true), 4);
  // The same across an unmapped child.
  ASSERT_EQ(munmap(memory.piece(1), kChildBytes), 0);
  EXPECT_EQ(prefetch({{key, memory.address(), memory.size()}}, PrefetchKind::no_fault), 0);
  EXPECT_EQ(resident_pages(key), 4U);
}

TEST_F(Prefetch, TakesListsOfRanges) {
  const Mapping first(50);
  const Mapping second(50);
  const Pieces third(2);
  const Key first_key = add(first);
  const Key second_key = add(second);
  const Key implicit_key = add_implicit(*domain_);
  EXPECT_EQ(prefetch({{first_key, first.address() + 2 * kPage, 3 * kPage},
                      {second_key, second.address(), 0},
                      {second_key, second.address() + 50 * kPage - 1, 1},
                      {first_key, first.address() + 40 * kPage, kPage},
                      {implicit_key, third.address() + kChildBytes - 2 * kPage, 4 * kPage}},
                     PrefetchKind::write),
            0);
  EXPECT_EQ(resident_pages(first_key), 4U);
  EXPECT_EQ(resident_pages(second_key), 1U);
  EXPECT_EQ(resident_pages(implicit_key), 4U);
  EXPECT_TRUE(is_there(implicit_key, third.address() + kChildBytes - 2 * kPage, 4 * kPage, kRemoteWrite));
  EXPECT_EQ(domain_->counters().num_prefetches_handled, 4U);
  EXPECT_EQ(prefetch({}, PrefetchKind::read), 0);
}

TEST_F(Prefetch, MistakesAreAnsweredAndNothingIsBegun) {
  const Mapping memory(64);
  const Mapping other(64);
  const Key key = add(memory);
  const Key read_only = add(memory, kOnDemand | kRemoteRead);
  const Key foreign = add(memory.address(), memory.size(), kAccess, 2);
  const Key classic = add(other, kLocalWrite);
  const Key implicit_key = add_implicit(*domain_);
  const Key window = domain_->allocate_window(1, WindowType::type2).key;
  const uint64_t va = memory.address();
  struct Mistake {
    PrefetchRange range;
    PrefetchKind kind;
    int error;
  };
  const std::array mistakes{
      Mistake{{key ^ 1, va, 1}, PrefetchKind::read, EFAULT},  // no such key
      Mistake{{0, va, 1}, PrefetchKind::read, EFAULT},
      Mistake{{key, va - 1, 1}, PrefetchKind::read, EFAULT},  // out of bounds
      Mistake{{key, va + 1, memory.size()}, PrefetchKind::write, EFAULT},
      Mistake{{key, va, ~uint64_t{0}}, PrefetchKind::no_fault, EFAULT},
      Mistake{{key, ~uint64_t{0}, 2}, PrefetchKind::read, EFAULT},
      Mistake{{implicit_key, kAddressSpaceBytes - 1, 2}, PrefetchKind::read, EFAULT},
      Mistake{{foreign, va, 1}, PrefetchKind::read, EPERM},                // key of another protection domain
      Mistake{{read_only, va, 1}, PrefetchKind::write, EPERM},             // no write permission
      Mistake{{classic, other.address(), 1}, PrefetchKind::read, EINVAL},  // not on demand
      Mistake{{window, va, 1}, PrefetchKind::read, EINVAL}};               // not a region
  for (const bool wait : {true, false}) {
    for (const Mistake& mistake : mistakes) {
      // After a valid range: the whole list is checked first.
      EXPECT_EQ(prefetch({{key, va, memory.size()}, mistake.range}, mistake.kind, wait), mistake.error)
          << &mistake - mistakes.data();
    }
    EXPECT_EQ(prefetch({{key, va, 1}}, PrefetchKind::read, wait, 0), EINVAL) << "no protection domain";
    EXPECT_EQ(prefetch({{key, va, 1}}, PrefetchKind::read, wait, 3), EPERM);
  }
  EXPECT_EQ(resident_pages(key), 0U);
  EXPECT_EQ(domain_->counters().num_prefetches_handled, 0U);
  EXPECT_EQ(prefetch({{read_only, va, 1}}, PrefetchKind::no_fault), 0);
  EXPECT_EQ(prefetch({{read_only, va, 1}}, PrefetchKind::read), 0);

  // Absent memory is an error for a caller that waits; the ranges next to it become resident nevertheless.
  ASSERT_EQ(munmap(memory.data() + 10 * kPage, kPage), 0);
  EXPECT_EQ(prefetch({{key, va + 10 * kPage, kPage}, {key, va + 20 * kPage, kPage}}, PrefetchKind::read),
            EFAULT);
  EXPECT_TRUE(is_there(key, va + 20 * kPage, kPage));
  EXPECT_EQ(prefetch({{key, va + 10 * kPage, kPage}}, PrefetchKind::read, false), 0);
  EXPECT_EQ(prefetch({{implicit_key, va + 10 * kPage, kPage}}, PrefetchKind::read), EFAULT);
  const Mapping guarded(1, PROT_NONE);
  EXPECT_EQ(prefetch({{add(guarded), guarded.address(), 1}}, PrefetchKind::read), EFAULT);
}

TEST_F(Prefetch, LargeRangesComeWhole) {
  for (const bool wait : {true, false}) {
    const Mapping memory(kLarge / kPage);
    ASSERT_NE(memory.data(), MAP_FAILED);
    const Key key = add(memory);
    EXPECT_EQ(prefetch({{key, memory.address(), memory.size()}}, PrefetchKind::write, wait), 0);
    if (wait) {
      EXPECT_EQ(resident_pages(key), kLarge / kPage);
    } else {
      EXPECT_TRUE(eventually([&] { return resident_pages(key) == kLarge / kPage; }));
    }
    EXPECT_TRUE(is_there(key, memory.address(), memory.size(), kRemoteWrite));
    EXPECT_EQ(domain_->deregister_region(key), 0);
  }
  const Pieces memory(kLarge / kChildBytes);
  const Key key = add_implicit(*domain_);
  EXPECT_EQ(prefetch({{key, memory.address() + 1, memory.size() - 2}}, PrefetchKind::read), 0);
  EXPECT_EQ(resident_pages(key), kLarge / kPage);
  EXPECT_EQ(domain_->counters().num_implicit_children, kLarge / kChildBytes);
}

/// One page of the advised range is not delivered. Neither faults on other pages nor other advice is delayed.
TEST_F(Prefetch, DataPathGoesOnMeanwhile) {
  for (const uint64_t bytes : {kLarge, uint64_t{1} << 20}) {
    for (const bool wait : {true, false}) {
      const Mapping memory(bytes / kPage);
      const SlowMemory slow(memory.data() + bytes / 2, SlowMemory::kPages);
      SKIP_WITHOUT_SLOW(slow);
      const Key key = add(memory);
      const Mapping others(500);
      const Key other_key = add(others);
      std::thread adviser([&] {
        EXPECT_EQ(prefetch({{key, memory.address(), memory.size()}}, PrefetchKind::write, wait), 0);
      });
      EXPECT_TRUE(slow.wait_for_fault());
      EXPECT_TRUE(serve_faults(other_key, others.address(), 500));
      // Faults of the same region, ahead of the prefetch and within the range that it has completed.
      EXPECT_TRUE(serve_faults(key, memory.address() + bytes - 20 * kPage, 20));
      EXPECT_TRUE(serve_faults(key, memory.address(), 20));
      EXPECT_EQ(prefetch({{other_key, others.address(), others.size()}}, PrefetchKind::write), 0);
      EXPECT_LT(resident_pages(key), bytes / kPage);
      EXPECT_TRUE(slow.deliver());
      adviser.join();
      EXPECT_TRUE(eventually([&] { return resident_pages(key) == bytes / kPage; }));
      EXPECT_EQ(memory.data()[bytes / 2 + 1], SlowMemory::kFill);
      EXPECT_EQ(domain_->deregister_region(key), 0);
    }
  }
}

TEST_F(Prefetch, RegionMayGoWhileItIsAdvised) {
  const Mapping memory(kLarge / kPage);
  const SlowMemory slow(memory.data() + kLarge / 2, SlowMemory::kPages);
  SKIP_WITHOUT_SLOW(slow);
  const Key key = add(memory);
  std::atomic<int> answer{-1};
  std::thread adviser([&] {
    answer = prefetch({{key, memory.address(), memory.size()}}, PrefetchKind::write);
  });
  EXPECT_TRUE(slow.wait_for_fault());
  EXPECT_EQ(domain_->deregister_region(key), 0);
  EXPECT_TRUE(slow.deliver());
  adviser.join();
  EXPECT_EQ(answer, EFAULT);
  EXPECT_EQ(domain_->counters().num_odp_mr_pages, 0U);
  // Advice that no thread waits for, until the domain is destroyed.
  for (int i = 0; i < 20; ++i) {
    const Key next = add(memory);
    EXPECT_EQ(prefetch({{next, memory.address(), memory.size()}}, PrefetchKind::read, false), 0);
    if (i % 2 == 0) {
      ASSERT_EQ(domain_->deregister_region(next), 0);
    }
  }
}

TEST_F(Prefetch, ForksComeInBetween) {
  const Mapping memory(kLarge / kPage);
  const Key key = add(memory);
  const Mapping others(2000);
  const Key other_key = add(others);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> failed{0};
  std::thread adviser([&] {
    for (bool wait = true; !stop; wait = !wait) {
      failed += prefetch({{key, memory.address(), memory.size()}}, PrefetchKind::write, wait) != 0;
      madvise(memory.data(), memory.size() / 4, MADV_DONTNEED);
    }
  });
  std::thread engine([&] {
    while (!stop) {
      failed += !serve_faults(other_key, others.address(), 2000);
      madvise(others.data(), others.size(), MADV_DONTNEED);
    }
  });
  for (int i = 0; i < 8; ++i) {
    std::memset(memory.data() + kLarge - kPage, i, kPage);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      // The child's copy of the memory, which no engine of the parent writes to.
      std::memset(memory.data(), 0xcc, 64 * kPage);
      _exit(memory.data()[kLarge - 1] == i ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  adviser.join();
  engine.join();
  EXPECT_EQ(failed.load(), 0U);
  EXPECT_EQ(memory.data()[0], 0) << "the child's bytes";
  EXPECT_EQ(prefetch({{key, memory.address(), memory.size()}}, PrefetchKind::write), 0);
  EXPECT_TRUE(is_there(key, memory.address(), memory.size(), kRemoteWrite));
}

}  // namespace
}  // namespace faultline::odp::test::prefetch_test
