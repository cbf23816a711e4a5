// SPDX-License-Identifier: BSD-3-Clause
// Published defects of other stacks' memory layers, each row with a test of its name, and the pitfalls of
// other on-demand layers. Translation (CVE-2026-46325), creation without memory (CVE-2026-45852 and similar)
// and destruction under load (CVE-2025-21829) have separate files.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "odp/regions/key_table.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test::threats_test {
namespace {

constexpr size_t kPage = 4096;
constexpr uint32_t kQpn = 0x1234;
constexpr uint32_t kEveryRight =
    kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic | kMemoryWindowBind | kFlushGlobal;

RegionResult register_memory(MemoryDomain& domain, uint64_t address, size_t bytes, uint32_t access) {
  return domain.register_region(
      {.domain = 1, .address = address, .length_bytes = bytes, .iova = address, .access = access});
}

WindowBinding whole_region(Key window, Key new_key, Key region, uint64_t va, uint64_t length_bytes) {
  return {.window = window,
          .new_key = new_key,
          .type = WindowType::type2,
          .domain = 1,
          .qpn = kQpn,
          .region = region,
          .va = va,
          .length_bytes = length_bytes,
          .access = kRemoteWrite | kRemoteRead | kRemoteAtomic};
}

Key next(Key key) {
  return (key & ~0xffU) | ((key + 1) & 0xff);
}

/// CVE-2026-46114: an ATOMIC WRITE wrote bytes that it did not carry. Here it writes eight bytes or none.
TEST(Cve202646114, AnAtomicThatDoesNotFitWritesNothing) {
  auto domain = make_domain();
  const Mapping memory(1);
  const Mapping all(1);
  for (size_t length = 1; length < 16; ++length) {
    std::fill_n(memory.data(), kPage, uint8_t{0xaa});
    const RegionResult region = register_memory(*domain, memory.address(), length, kEveryRight);
    ASSERT_EQ(region.error, 0);
    auto session = domain->attach_engine();
    session->enter();
    for (size_t offset = 0; offset < 16; ++offset) {
      for (const AtomicOp op : {AtomicOp::store, AtomicOp::fetch_add, AtomicOp::compare_swap}) {
        uint64_t original = 0;
        std::fill_n(memory.data(), kPage, uint8_t{0xaa});
        const Outcome outcome = session->atomic({region.key, 1, kRemoteWrite}, memory.address() + offset,
                                                {op, 0xaaaaaaaaaaaaaaaaU, 0x5555555555555555U}, original);
        const bool fits = offset == 0 && length >= sizeof original;
        ASSERT_EQ(outcome, fits || (offset == 8 && length >= 16) ? Outcome::done : Outcome::violation);
        const auto changed =
            kPage - static_cast<size_t>(std::count(memory.data(), memory.data() + kPage, 0xaa));
        ASSERT_EQ(changed, fits ? sizeof original : 0U);
      }
    }
    session->leave();
    EXPECT_EQ(domain->deregister_region(region.key), 0);
  }
}

/// CVE-2021-47076: a bad key caused no response. Here each operation and the pager report it.
TEST(Cve202147076, ABadKeyIsAnsweredByEveryOperation) {
  auto domain = make_domain();
  auto session = domain->attach_engine();
  const Mapping memory(1);
  const RegionResult region = register_memory(*domain, memory.address(), kPage, kEveryRight | kOnDemand);
  const RegionResult window = domain->allocate_window(1, WindowType::type2);
  ASSERT_EQ(region.error + window.error, 0);
  std::array<uint8_t, 8> bytes{};
  uint64_t word = 0;
  uint64_t length_bytes = 0;
  for (const Key bad : {Key{0}, ~Key{0}, region.key ^ 1, region.key ^ 0x100, window.key, window.key ^ 1}) {
    SCOPED_TRACE(bad);
    const Target target{bad, 1, kRemoteWrite, kQpn};
    session->enter();
    EXPECT_EQ(session->check(target, memory.address(), 8), Outcome::violation);
    EXPECT_EQ(session->probe(target, memory.address(), 8), Outcome::violation);
    EXPECT_EQ(session->read(target, memory.address(), bytes), Outcome::violation);
    EXPECT_EQ(session->write(target, memory.address(), bytes), Outcome::violation);
    EXPECT_EQ(session->atomic(target, memory.address(), {}, word), Outcome::violation);
    EXPECT_EQ(session->flush(target, memory.address(), 8, FlushKind::global), Outcome::violation);
    EXPECT_FALSE(session->range_of(bad, word, length_bytes));
    EXPECT_EQ(session->invalidate(bad, 1, kQpn, true), Outcome::violation);
    EXPECT_EQ(session->bind_window(whole_region(window.key, next(window.key), bad, memory.address(), 8)),
              Outcome::violation);
    if (bad >> 8 != window.key >> 8) {
      EXPECT_EQ(session->bind_window(whole_region(bad, next(bad), region.key, memory.address(), 8)),
                Outcome::violation);
    }
    ASSERT_TRUE(session->request_fault({target, memory.address(), 8, {bad}}));
    const Resolution answer = next_resolution(*session);
    EXPECT_EQ(answer.waiter.bits, bad);
    EXPECT_EQ(answer.outcome, Outcome::violation);
    session->leave();
  }
}

/// rxe 7.2.12: a second SEND with invalidate of one window panicked. Here it is refused, on one core after
/// the other or on two at once, and the region's window count stays correct.
TEST(RxeInvalidateTwice, OneOfTwoSucceedsAndNothingElseHappens) {
  constexpr int kRounds = 3000;
  auto domain = make_domain();
  const Mapping memory(1);
  const RegionResult region = register_memory(*domain, memory.address(), kPage, kEveryRight);
  const RegionResult window = domain->allocate_window(1, WindowType::type2);
  ASSERT_EQ(region.error + window.error, 0);
  std::atomic<Key> offered{0};
  std::atomic<int> theirs{0};
  std::atomic<int> answered{0};
  std::thread other([&] {
    auto session = domain->attach_engine();
    Key last = 0;
    for (int round = 0; round < kRounds; ++round) {
      while (offered == last) std::this_thread::yield();
      last = offered;
      session->enter();
      if (session->invalidate(last, 1, kQpn, true) == Outcome::done) ++theirs;
      session->leave();
      ++answered;
    }
  });
  auto session = domain->attach_engine();
  Key key = window.key;
  int ours = 0;
  for (int round = 0; round < kRounds; ++round) {
    session->enter();
    EXPECT_EQ(session->bind_window(whole_region(key, next(key), region.key, memory.address(), kPage)),
              Outcome::done);
    key = next(key);
    offered = key;
    if (session->invalidate(key, 1, kQpn, true) == Outcome::done) ++ours;
    session->leave();
    while (answered <= round) std::this_thread::yield();
    session->enter();
    EXPECT_EQ(session->invalidate(key, 1, kQpn, true), Outcome::violation);
    session->leave();
  }
  other.join();
  EXPECT_EQ(ours + theirs, kRounds);
  EXPECT_EQ(domain->deregister_region(region.key), 0) << "counted down twice, it would never go";
}

/// siw, CVE-2026-68417: an object was found before it was complete.
TEST(Cve202668417, AKeyIsFoundOnceItIsPublished) {
  KeyTable table;
  ASSERT_TRUE(table.allocate());
  Window window(WindowType::type2, 1);
  Key key = 0;
  ASSERT_EQ(table.reserve(window, key), 0);
  ASSERT_NE(key, 0U);
  EXPECT_EQ(window.view().key, key);
  EXPECT_EQ(table.find_window(key), nullptr);
  EXPECT_EQ(table.withdraw_window(key), nullptr);
  EXPECT_EQ(table.find(key), nullptr);
  table.publish(window, key);
  EXPECT_EQ(table.find_window(key), &window);
  EXPECT_EQ(table.find(key), nullptr) << "a window's key is no region's";
}

TEST(Keys, OfWindowsAndRegionsNeverMeet) {
  constexpr size_t kCount = 30'000;
  KeyTable table;
  ASSERT_TRUE(table.allocate());
  std::vector<std::unique_ptr<Region>> regions;
  std::vector<std::unique_ptr<Window>> windows;
  std::set<uint32_t> indices;
  for (size_t i = 0; i < kCount; ++i) {
    regions.push_back(std::make_unique<Region>());
    ASSERT_EQ(table.reserve(*regions.back()), 0);
    table.publish(*regions.back());
    windows.push_back(std::make_unique<Window>(WindowType::type1, 1));
    Key key = 0;
    ASSERT_EQ(table.reserve(*windows.back(), key), 0);
    ASSERT_NE(key, 0U);
    table.publish(*windows.back(), key);
    ASSERT_TRUE(indices.insert(regions.back()->key >> 8).second);
    ASSERT_TRUE(indices.insert(key >> 8).second);
  }
  for (const auto& region : regions) ASSERT_EQ(table.find_window(region->key), nullptr);
  for (const auto& window : windows) ASSERT_EQ(table.find(window->view().key), nullptr);
}

TEST(Keys, AllVariantsOfWhatIsGoneAreStale) {
  auto domain = make_domain();
  auto session = domain->attach_engine();
  const Mapping memory(1);
  const RegionResult region = register_memory(*domain, memory.address(), kPage, kEveryRight);
  const RegionResult window = domain->allocate_window(1, WindowType::type2);
  const RegionResult unbound = domain->allocate_window(1, WindowType::type1);
  ASSERT_EQ(region.error + window.error + unbound.error, 0);
  session->enter();
  ASSERT_EQ(
      session->bind_window(whole_region(window.key, next(window.key), region.key, memory.address(), kPage)),
      Outcome::done);
  session->leave();
  const auto usable = [&](Key any) {
    int count = 0;
    const std::array<uint8_t, 8> bytes{};
    session->enter();
    for (uint32_t variant = 0; variant < 256; ++variant) {
      const Target target{(any & ~0xffU) | variant, 1, kRemoteWrite, kQpn};
      if (session->write(target, memory.address(), bytes) != Outcome::violation) ++count;
    }
    session->leave();
    return count;
  };
  EXPECT_EQ(usable(region.key), 1);
  EXPECT_EQ(usable(window.key), 1);
  EXPECT_EQ(usable(unbound.key), 0);
  EXPECT_EQ(domain->deallocate_window(window.key), 0);
  EXPECT_EQ(usable(window.key), 0);
  EXPECT_EQ(domain->deregister_region(region.key), 0);
  EXPECT_EQ(usable(region.key), 0);
  for (uint32_t variant = 0; variant < 256; ++variant) {
    EXPECT_EQ(domain->deregister_region((region.key & ~0xffU) | variant), ENOENT);
    EXPECT_EQ(domain->deregister_region((unbound.key & ~0xffU) | variant), ENOENT) << "a window is no region";
    EXPECT_EQ(domain->deallocate_window((window.key & ~0xffU) | variant), ENOENT);
  }
}

TEST(Keys, ARegionThatIsBusyWithWindowsIsNeverOutOfSight) {
  auto domain = make_domain();
  const Mapping memory(1);
  const RegionResult region = register_memory(*domain, memory.address(), kPage, kEveryRight);
  const RegionResult window = domain->allocate_window(1, WindowType::type2);
  ASSERT_EQ(region.error + window.error, 0);
  auto session = domain->attach_engine();
  session->enter();
  ASSERT_EQ(
      session->bind_window(whole_region(window.key, next(window.key), region.key, memory.address(), kPage)),
      Outcome::done);
  std::atomic<bool> stop{false};
  std::atomic<int> busy{0};
  std::thread program([&] {
    while (!stop) busy += domain->deregister_region(region.key) == EBUSY ? 1 : 0;
  });
  const std::array<uint8_t, 8> bytes{};
  while (busy < 1000) {
    session->enter();
    ASSERT_EQ(session->write({region.key, 1, kLocalWrite}, memory.address(), bytes), Outcome::done);
    ASSERT_EQ(session->write({next(window.key), 1, kRemoteWrite, kQpn}, memory.address(), bytes),
              Outcome::done);
  }
  session->leave();
  stop = true;
  program.join();
}

/// Pitfall 1: write permission is per page, regardless of the operation and of what made the page read-only.
class CopyOnWriteTrap : public testing::Test {
 protected:
  enum class Way : uint8_t { write, atomic, window };
  static constexpr std::array kWays{Way::write, Way::atomic, Way::window};

  void open(uint64_t address, size_t bytes) {
    const RegionResult region = register_memory(*domain_, address, bytes, kEveryRight | kOnDemand);
    const RegionResult window = domain_->allocate_window(1, WindowType::type2);
    ASSERT_EQ(region.error + window.error, 0);
    region_ = region.key;
    window_ = next(window.key);
    session_->enter();
    ASSERT_EQ(session_->bind_window(whole_region(window.key, window_, region_, address, bytes)),
              Outcome::done);
    session_->leave();
  }
  void close_all() {
    EXPECT_EQ(domain_->deallocate_window(window_), 0);
    EXPECT_EQ(domain_->deregister_region(region_), 0);
  }
  void touch_for_reading(uint64_t va, uint8_t expected) {
    std::array<uint8_t, 1> byte{};
    ASSERT_EQ(read_all(*session_, {region_, 1, kRemoteRead}, va, byte), Outcome::done);
    EXPECT_EQ(byte[0], expected);
    ASSERT_EQ(read_all(*session_, {window_, 1, kRemoteRead, kQpn}, va, byte), Outcome::done);
  }
  Outcome attempt(Way way, uint64_t va) {
    static constexpr std::array<uint8_t, 8> kBytes{1, 1, 1, 1, 1, 1, 1, 1};
    uint64_t original = 0;
    if (way == Way::atomic)
      return session_->atomic(target(way), va, {AtomicOp::store, 0, 0x0101010101010101}, original);
    return session_->write(target(way), va, kBytes);
  }
  [[nodiscard]] Target target(Way way) const {
    switch (way) {
      case Way::write:
        return {region_, 1, kRemoteWrite};
      case Way::atomic:
        return {region_, 1, kRemoteAtomic};
      case Way::window:
        break;
    }
    return {window_, 1, kRemoteWrite, kQpn};
  }
  void expect_fault_then_write(Way way, uint64_t va) {
    session_->enter();
    EXPECT_EQ(attempt(way, va), Outcome::miss) << "resident, but for reading only";
    session_->leave();
    EXPECT_EQ(until_settled(*session_, {target(way), va, 8, {3}}, [&] { return attempt(way, va); }),
              Outcome::done);
    EXPECT_EQ(*reinterpret_cast<const uint8_t*>(va), 1);
  }
  std::unique_ptr<MemoryDomain> domain_ = make_domain();
  std::unique_ptr<EngineSession> session_ = domain_->attach_engine();
  Key region_ = 0, window_ = 0;
};

TEST_F(CopyOnWriteTrap, AZeroPageIsReplacedBeforeItIsWritten) {
  const Mapping memory(8);
  madvise(memory.data(), memory.size(), MADV_NOHUGEPAGE);
  open(memory.address(), memory.size());
  for (size_t page = 0; page < 8; ++page) touch_for_reading(memory.address() + page * kPage, 0);
  size_t page = 0;
  for (const Way way : kWays) expect_fault_then_write(way, memory.address() + page++ * kPage);
  for (; page < 8; ++page) EXPECT_EQ(memory.data()[page * kPage], 0);
  close_all();
}

TEST_F(CopyOnWriteTrap, APrivateFileKeepsItsBytes) {
  const int file = memfd_create("private", MFD_CLOEXEC);
  const std::vector<uint8_t> content(3 * kPage, 0x66);
  ASSERT_EQ(write(file, content.data(), content.size()), static_cast<ssize_t>(content.size()));
  void* const memory = mmap(nullptr, content.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  const auto address = reinterpret_cast<uint64_t>(memory);
  open(address, content.size());
  size_t page = 0;
  for (const Way way : kWays) {
    touch_for_reading(address + page * kPage, 0x66);
    expect_fault_then_write(way, address + page++ * kPage);
  }
  std::vector<uint8_t> seen(content.size());
  ASSERT_EQ(pread(file, seen.data(), seen.size(), 0), static_cast<ssize_t>(seen.size()));
  EXPECT_EQ(seen, content);
  close_all();
  munmap(memory, content.size());
  close(file);
}

TEST_F(CopyOnWriteTrap, AChildKeepsItsBytes) {
  const Mapping memory(3);
  std::fill_n(memory.data(), memory.size(), uint8_t{0x11});
  open(memory.address(), memory.size());
  for (const Way way : kWays)
    ASSERT_EQ(until_settled(*session_, {target(way), memory.address(), memory.size(), {3}},
                            [&] { return session_->probe(target(way), memory.address(), memory.size()); }),
              Outcome::done);
  std::array<int, 2> go{};
  ASSERT_EQ(pipe(go.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    const bool told = read(go[0], &byte, 1) == 1;
    const auto intact = std::count(memory.data(), memory.data() + memory.size(), 0x11);
    _exit(told && intact == static_cast<long>(memory.size()) ? 0 : 1);
  }
  size_t page = 0;
  for (const Way way : kWays) {
    const uint64_t va = memory.address() + page++ * kPage;
    EXPECT_EQ(until_settled(*session_, {target(way), va, 8, {3}}, [&] { return attempt(way, va); }),
              Outcome::done);
    EXPECT_EQ(*reinterpret_cast<const uint8_t*>(va), 1);
  }
  ASSERT_EQ(write(go[1], "x", 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(go[0]);
  close(go[1]);
  close_all();
}

/// Pitfall 2. (A test of ibv_rereg_mr covers that a re-registration cannot change a region's kind.)
TEST(PrefetchTrap, WhatIsNotOnDemandIsRefused) {
  auto domain = make_domain();
  const Mapping memory(2);
  const RegionResult classic = register_memory(*domain, memory.address(), kPage, kEveryRight);
  const RegionResult paged =
      register_memory(*domain, memory.address() + kPage, kPage, kEveryRight | kOnDemand);
  const RegionResult window = domain->allocate_window(1, WindowType::type2);
  ASSERT_EQ(classic.error + paged.error + window.error, 0);
  auto session = domain->attach_engine();
  session->enter();
  ASSERT_EQ(session->bind_window(
                whole_region(window.key, next(window.key), paged.key, memory.address() + kPage, kPage)),
            Outcome::done);
  session->leave();
  for (const bool wait : {true, false}) {
    for (const uint32_t need : {uint32_t{kLocalRead}, uint32_t{kLocalWrite}}) {
      EXPECT_EQ(advise(*domain, {classic.key, 1, need}, memory.address(), kPage, wait), EINVAL);
      EXPECT_EQ(advise(*domain, {next(window.key), 1, need, kQpn}, memory.address() + kPage, kPage, wait),
                EINVAL)
          << "a window's key is no lkey";
      EXPECT_EQ(advise(*domain, {paged.key, 1, need}, memory.address() + kPage, kPage, wait), 0);
    }
  }
}

/// Pitfall 4: a data-path fault overtakes a long prefetch of the same region.
TEST(PrefetchTrap, ALongOneHoldsUpNoFaultOfItsRegion) {
  // Reads touch zero pages only, and nothing is pinned: the range costs only page tables.
  auto domain = make_domain({.pin_budget_bytes = 0});
  auto session = domain->attach_engine();
  bool overtaken = false;
  // If this thread is descheduled for a whole prefetch, a longer prefetch repeats the test.
  for (size_t bytes = size_t{256} << 20; !overtaken && bytes <= size_t{4} << 30; bytes *= 2) {
    const Mapping memory(bytes / kPage);
    const RegionResult region = register_memory(*domain, memory.address(), bytes, kRemoteRead | kOnDemand);
    ASSERT_EQ(region.error, 0);
    const uint64_t handled = domain->counters().num_prefetches_handled;
    ASSERT_EQ(advise(*domain, {region.key, 1, kLocalRead}, memory.address(), bytes, false), 0);
    std::array<uint8_t, 8> last{};
    EXPECT_EQ(read_all(*session, {region.key, 1, kRemoteRead}, memory.address() + bytes - 8, last),
              Outcome::done);
    overtaken = domain->counters().num_prefetches_handled == handled;
    EXPECT_EQ(domain->deregister_region(region.key), 0);
  }
  EXPECT_TRUE(overtaken);
}

}  // namespace
}  // namespace faultline::odp::test::threats_test
