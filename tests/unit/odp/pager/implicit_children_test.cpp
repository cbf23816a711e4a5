// SPDX-License-Identifier: BSD-3-Clause
// The children of implicit regions: their number, their removal, and concurrent accesses.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/odp/pager/implicit_region.hpp"
#include "tests/unit/odp/pager/slow_memory.hpp"

namespace faultline::odp::test::implicit_children_test {
namespace {

constexpr uint64_t kPage = 4096;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

/// Returns whether any part of the range is registered with a userfaultfd (proc(5), smaps, VmFlags: "uw",
/// "um").
bool is_watched(uint64_t start, uint64_t end) {
  std::ifstream smaps("/proc/self/smaps");
  uint64_t from = 0;
  uint64_t to = 0;
  for (std::string line; std::getline(smaps, line);) {
    uint64_t first = 0;
    uint64_t last = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &last) == 2) {
      from = first;
      to = last;
      continue;
    }
    if (!line.starts_with("VmFlags:") || from >= end || to <= start) continue;
    line += ' ';
    if (line.find(" uw ") != line.npos || line.find(" um ") != line.npos) return true;
  }
  return false;
}

uint64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

bool touch(EngineSession& session, Key key, uint64_t va, uint64_t value) {
  std::array<uint8_t, sizeof value> bytes;
  std::memcpy(bytes.data(), &value, sizeof value);
  return write_all(session, {key, 1, kRemoteWrite}, va, bytes) == Outcome::done;
}

TEST(ImplicitChildren, GoWithTheirLastPage) {
  auto domain = make_domain();
  const Pieces memory(8);
  const Key key = add_implicit(*domain);
  auto session = domain->attach_engine();
  const auto children_are = [&](uint64_t count) {
    return eventually([&] { return domain->counters().num_implicit_children == count; });
  };
  for (size_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(touch(*session, key, reinterpret_cast<uint64_t>(memory.piece(i)) + i * kPage, i));
    ASSERT_TRUE(touch(*session, key, reinterpret_cast<uint64_t>(memory.piece(i)) + 200 * kPage, i));
    EXPECT_EQ(domain->counters().num_implicit_children, i + 1);
  }
  EXPECT_TRUE(is_watched(memory.address(), memory.address() + memory.size()));

  // Discards one of two pages, and then the other.
  ASSERT_EQ(madvise(memory.piece(1) + kPage, kPage, MADV_DONTNEED), 0);
  EXPECT_TRUE(eventually([&] { return domain->counters().num_odp_mr_pages == 15; }));
  EXPECT_EQ(domain->counters().num_implicit_children, 8U);
  ASSERT_EQ(madvise(memory.piece(1) + 200 * kPage, kPage, MADV_DONTNEED), 0);
  EXPECT_TRUE(children_are(7)) << "without any other fault";
  // Unmaps a part that contains all the child's pages, and a whole child.
  ASSERT_EQ(munmap(memory.piece(2), 201 * kPage), 0);
  EXPECT_TRUE(children_are(6));
  ASSERT_EQ(munmap(memory.piece(3), 2 * kChildBytes), 0);
  EXPECT_TRUE(children_are(4));
  // Maps other memory in its place.
  ASSERT_EQ(mmap(memory.piece(5), kChildBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            memory.piece(5));
  EXPECT_TRUE(children_are(3));
  // Moves it away; the region reaches it at the new address too.
  const Pieces place(1, PROT_NONE);
  ASSERT_EQ(mremap(memory.piece(6), kChildBytes, kChildBytes, MREMAP_MAYMOVE | MREMAP_FIXED, place.data()),
            place.data());
  EXPECT_TRUE(children_are(2));
  std::array<uint8_t, 8> bytes{};
  EXPECT_EQ(read_all(*session, {key, 1, kRemoteRead}, place.address() + 200 * kPage, bytes), Outcome::done);
  EXPECT_EQ(bytes[0], 6);
  EXPECT_EQ(domain->counters().num_implicit_children, 3U);
  // The children are created again when memory is mapped there.
  ASSERT_TRUE(touch(*session, key, reinterpret_cast<uint64_t>(memory.piece(5)), 50));
  ASSERT_TRUE(touch(*session, key, reinterpret_cast<uint64_t>(memory.piece(1)), 10));
  EXPECT_EQ(memory.piece(5)[0], 50);
  EXPECT_EQ(memory.piece(1)[0], 10);
  EXPECT_EQ(domain->counters().num_implicit_children, 5U);

  EXPECT_EQ(domain->deregister_region(key), 0);
  const Counters counters = domain->counters();
  EXPECT_EQ(counters.num_implicit_children, 0U);
  EXPECT_EQ(counters.implicit_children_made, counters.implicit_children_reclaimed);
  EXPECT_EQ(counters.num_odp_mr_pages, 0U);
  EXPECT_EQ(counters.pinned_bytes, 0U);
  EXPECT_FALSE(is_watched(0, kAddressSpaceBytes));
  EXPECT_EQ(place.data()[200 * kPage], 6) << "the program's memory stays as it is";
}

TEST(ImplicitChildren, AreNotMadeWhereNothingCanBeHad) {
  auto domain = make_domain({.implicit_children = 4});
  const Pieces nothing(32, PROT_NONE);
  const Key key = add_implicit(*domain);
  auto session = domain->attach_engine();
  for (uint64_t i = 0; i < 32; ++i)
    EXPECT_FALSE(touch(*session, key, nothing.address() + i * kChildBytes, 1));
  uint64_t failed = 32;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Addresses without any mapping. (A sanitizer's shadow memory is mapped nearly everywhere.)
  for (uint64_t i = 1; i < 32; ++i, ++failed) EXPECT_FALSE(touch(*session, key, i << 40, 1));
#endif
  EXPECT_EQ(domain->counters().num_failed_resolutions, failed);
  EXPECT_TRUE(eventually([&] { return domain->counters().num_implicit_children == 0; }));
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 0U);
}

/// Memory used in addition to the touched pages: 64 KiB for the children that may exist at a time; 4 bytes
/// for each 2 MiB ever visited (2 MiB for all of 1 TiB); and what the C library and this test's list of
/// values need.
TEST(ImplicitChildren, WanderingOverATebibyteCostsNoMemory) {
  constexpr uint64_t kReserved = uint64_t{1} << 40;
  constexpr uint64_t kPieces = kReserved / kChildBytes;
  constexpr uint32_t kBudget = 64;
  constexpr size_t kVisits = 6000;
  constexpr uint64_t kBoundBytes = uint64_t{8} << 20;
  auto* const memory = static_cast<uint8_t*>(
      mmap(nullptr, kReserved + kChildBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (memory == MAP_FAILED) GTEST_SKIP() << "no room for 1 TiB of addresses";
  const uint64_t base = (reinterpret_cast<uint64_t>(memory) + kChildBytes - 1) & ~(kChildBytes - 1);
  auto domain = make_domain({.implicit_children = kBudget});
  const Key key = add_implicit(*domain);
  auto session = domain->attach_engine();
  std::mt19937_64 random(11);
  std::vector<std::pair<uint64_t, uint64_t>> written;
  std::unordered_map<uint64_t, bool> opened;
  written.reserve(kVisits);
  opened.reserve(kVisits);
  const uint64_t before_bytes = resident_bytes();
  uint64_t highest_bytes = 0;
  uint64_t most_children = 0;
  for (size_t i = 0; i < kVisits; ++i) {
    const uint64_t piece = random() % kPieces;
    const uint64_t va = base + piece * kChildBytes + random() % (kChildBytes / 8) * 8;
    if (!opened.emplace(piece, true).second) continue;
    ASSERT_EQ(
        mprotect(reinterpret_cast<void*>(base + piece * kChildBytes), kChildBytes, PROT_READ | PROT_WRITE),
        0);
    written.emplace_back(va, random());
    ASSERT_TRUE(touch(*session, key, va, written.back().second));
    ASSERT_EQ(*reinterpret_cast<uint64_t*>(va), written.back().second);
    // Returns to an old address, whose child has been removed.
    const auto& [old_va, old_value] = written[random() % written.size()];
    std::array<uint8_t, 8> bytes{};
    ASSERT_EQ(read_all(*session, {key, 1, kRemoteRead}, old_va, bytes), Outcome::done);
    ASSERT_EQ(std::memcmp(bytes.data(), &old_value, sizeof old_value), 0);
    most_children = std::max(most_children, domain->counters().num_implicit_children);
    if (i % 256 == 0) highest_bytes = std::max(highest_bytes, resident_bytes());
  }
  highest_bytes = std::max(highest_bytes, resident_bytes());
  EXPECT_LE(most_children, kBudget);
  EXPECT_GT(most_children, kBudget / 2);
  EXPECT_GT(domain->counters().implicit_children_reclaimed, kVisits / 2);
  EXPECT_LE(domain->counters().num_odp_mr_pages, kBudget * kChildPages);
  const uint64_t touched_bytes = written.size() * kPage;
  const uint64_t cost_bytes = highest_bytes - std::min(highest_bytes, before_bytes + touched_bytes);
  std::printf("%zu of %lu pieces visited: %lu KiB beside the %lu KiB touched, %lu children made\n",
              written.size(), kPieces, cost_bytes >> 10, touched_bytes >> 10,
              domain->counters().implicit_children_made);
  if (!kSanitized) {
    EXPECT_LE(cost_bytes, kBoundBytes);
  }
  for (const auto& [va, value] : written) ASSERT_EQ(*reinterpret_cast<uint64_t*>(va), value);
  EXPECT_EQ(domain->deregister_region(key), 0);
  EXPECT_EQ(domain->counters().num_implicit_children, 0U);
  EXPECT_FALSE(is_watched(base, base + kReserved));
  EXPECT_EQ(munmap(memory, kReserved + kChildBytes), 0);
}

TEST(ImplicitChildren, OneMessageMayNeedMoreThanAllPlaces) {
  auto domain = make_domain({.implicit_children = 2});
  const Pieces memory(8);
  const Key key = add_implicit(*domain);
  auto session = domain->attach_engine();
  // Like a responder: packet by packet, each fault request covering the rest of the message.
  const std::vector<uint8_t> packet(kPage, 0x77);
  const Target target{key, 1, kRemoteWrite};
  for (uint64_t at = 100; at + kPage <= memory.size(); at += kPage) {
    const uint64_t va = memory.address() + at;
    ASSERT_EQ(until_settled(*session, {target, va, memory.size() - at, {1}},
                            [&] { return session->write(target, va, packet); }),
              Outcome::done);
    ASSERT_LE(domain->counters().num_implicit_children, 2U);
  }
  for (uint64_t at = 100; at + 2 * kPage <= memory.size(); at += 997) ASSERT_EQ(memory.data()[at], 0x77);
  EXPECT_EQ(domain->deregister_region(key), 0);
}

TEST(ImplicitChildren, FirstTouchOfASlowPageDelaysNobody) {
  auto domain = make_domain();
  const Pieces memory(2);
  const SlowMemory slow(memory.data(), SlowMemory::kPages);
  SKIP_WITHOUT_SLOW(slow);
  const Key key = add_implicit(*domain);
  const Key second = add_implicit(*domain);
  auto session = domain->attach_engine();
  for (const Key one : {key, second}) {
    session->enter();
    ASSERT_TRUE(session->request_fault({{one, 1, kRemoteWrite}, memory.address(), 8, {one}}));
    session->leave();
  }
  ASSERT_TRUE(slow.wait_for_fault());
  auto other_session = domain->attach_engine();
  Resolution resolution;
  other_session->enter();
  ASSERT_TRUE(other_session->request_fault(
      {{key, 1, kRemoteWrite}, reinterpret_cast<uint64_t>(memory.piece(1)), 8, {3}}));
  EXPECT_TRUE(eventually([&] {
    other_session->enter();
    const bool answered = other_session->take_resolutions({&resolution, 1}) == 1;
    other_session->leave();
    return answered;
  }));
  // The region is deregistered while a fault of its first page is in progress.
  if (!testing::Test::HasFailure()) {
    EXPECT_EQ(domain->deregister_region(key), 0);
    EXPECT_EQ(domain->counters().num_odp_mrs, 1U);
  }
  ASSERT_TRUE(slow.deliver());
  std::array<Outcome, 2> outcomes;
  for (size_t i = 0; i < 2; ++i) {
    const Resolution answer = next_resolution(*session);
    session->leave();
    outcomes[answer.waiter.bits == key ? 0 : 1] = answer.outcome;
  }
  EXPECT_EQ(outcomes[0], Outcome::violation);
  EXPECT_EQ(outcomes[1], Outcome::done);
  EXPECT_EQ(domain->deregister_region(second), 0);
  EXPECT_EQ(domain->counters().num_implicit_children, 0U);
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 0U);
}

/// Memory that changes during traffic. Each engine writes numbered blocks into a separate stable piece,
/// across the borders of two children. It also writes into shared pieces that are unmapped and mapped again.
class Traffic {
 public:
  static constexpr size_t kEngines = 3;
  static constexpr size_t kBlock = 3000;
  static constexpr uint64_t kRounds = kSanitized ? 300 : 2000;

  Traffic() : domain_(make_domain({.implicit_children = 12})), key_(add_implicit(*domain_)) {}

  void engine(size_t number) {
    auto session = domain_->attach_engine();
    std::mt19937_64 random(number);
    const Target write{key_, 1, kRemoteWrite};
    const Target read{key_, 1, kRemoteRead};
    std::vector<uint8_t> block(kBlock);
    std::vector<uint8_t> back(kBlock);
    const uint64_t own = stable_.address() + number * 2 * kChildBytes;
    for (uint64_t round = 0; round < kRounds; ++round) {
      block.assign(kBlock, static_cast<uint8_t>(random() % 254 + 1));
      const uint64_t at = round % 4 == 0 ? kChildBytes - kBlock / 2 : random() % (2 * kChildBytes - kBlock);
      wrong_ += write_all(*session, write, own + at, block) != Outcome::done;
      wrong_ += std::memcmp(reinterpret_cast<void*>(own + at), block.data(), kBlock) != 0;
      wrong_ += read_all(*session, read, own + at, back) != Outcome::done;
      wrong_ += back != block;
      const uint64_t shared = coming_.address() + random() % (coming_.size() - kBlock);
      (write_all(*session, write, shared, block) == Outcome::done ? shared_done_ : shared_refused_) += 1;
      if (read_all(*session, read, shared, back) != Outcome::done) continue;
      wrong_ += std::find(back.begin(), back.end(), kForeign) != back.end();
    }
    running_ -= 1;
  }

  /// Moves a part to a place that no engine may access: after the move nothing may change it. Returns false
  /// if the part is watched only partly, which mremap(2) treats as two mappings (EFAULT).
  bool move_away(size_t offset, size_t bytes) {
    void* const moved =
        mremap(coming_.data() + offset, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere_.data());
    if (moved == MAP_FAILED) return false;
    const std::vector<uint8_t> seen(elsewhere_.data(), elsewhere_.data() + bytes);
    std::memset(elsewhere_.data(), kForeign, bytes);
    for (int look = 0; look < 2; ++look) {
      std::this_thread::yield();
      for (size_t i = 0; i < bytes; ++i) wrong_ += elsewhere_.data()[i] != kForeign;
    }
    wrong_ += std::find(seen.begin(), seen.end(), kForeign) != seen.end();
    ++moves_;
    return true;
  }

  /// The program: takes parts of the shared pieces away and maps memory there again.
  void unmap_and_map() {
    std::mt19937_64 random(99);
    while (running_ != 0) {
      const size_t offset = random() % (coming_.size() / kPage) * kPage;
      const size_t bytes =
          std::min(coming_.size() - offset, (1 + random() % (random() % 2 == 0 ? 600 : 8)) * kPage);
      if (random() % 4 != 0 || !move_away(offset, bytes)) {
        ASSERT_EQ(munmap(coming_.data() + offset, bytes), 0);
      }
      if (random() % 4 == 0) std::this_thread::yield();
      coming_.map(offset, bytes, random() % 8 == 0 ? PROT_NONE : PROT_READ | PROT_WRITE);
      // PROT_NONE for a short time.
      ASSERT_EQ(mprotect(coming_.data() + offset, bytes, PROT_READ | PROT_WRITE), 0);
      ++remaps_;
    }
  }

  void run() {
    std::vector<std::thread> engines;
    for (size_t i = 0; i < kEngines; ++i) engines.emplace_back([this, i] { engine(i); });
    unmap_and_map();
    for (std::thread& thread : engines) thread.join();
    EXPECT_EQ(wrong_.load(), 0U);
    EXPECT_GT(shared_done_.load(), 0U);
    EXPECT_GT(moves_, 0U);
    // All accesses succeed when the traffic has ended.
    auto session = domain_->attach_engine();
    for (uint64_t at = 0; at < coming_.size(); at += kChildBytes / 2)
      EXPECT_TRUE(touch(*session, key_, coming_.address() + at, at));
    std::printf(
        "%lu remaps, %lu of them moved, %lu writes into what came and went, %lu refused, %lu children made\n",
        remaps_, moves_, shared_done_.load(), shared_refused_.load(),
        domain_->counters().implicit_children_made);
    EXPECT_EQ(domain_->deregister_region(key_), 0);
    EXPECT_EQ(domain_->counters().num_implicit_children, 0U);
    EXPECT_EQ(domain_->counters().num_odp_mr_pages, 0U);
    EXPECT_EQ(domain_->counters().pinned_bytes, 0U);
    EXPECT_FALSE(is_watched(stable_.address(), stable_.address() + stable_.size()));
    // Memory that was moved while watched may stay watched: the kernel moves the registration with it, and
    // its events match no region.
  }

 private:
  static constexpr uint8_t kForeign = 0xff;

  const Pieces stable_{2 * kEngines};
  const Pieces coming_{8};
  const Pieces elsewhere_{2};
  const std::unique_ptr<MemoryDomain> domain_;
  const Key key_;
  std::atomic<size_t> running_{kEngines};
  std::atomic<uint64_t> wrong_{0};
  std::atomic<uint64_t> shared_done_{0};
  std::atomic<uint64_t> shared_refused_{0};
  uint64_t remaps_ = 0;
  uint64_t moves_ = 0;
};

TEST(ImplicitChildren, EnginesGoOnWhileTheProgramUnmapsAndMaps) {
  Traffic traffic;
  traffic.run();
}

TEST(ImplicitChildren, RegionsComeAndGoUnderTraffic) {
  auto domain = make_domain({.implicit_children = 8});
  const Pieces memory(4);
  std::atomic<Key> key{add_implicit(*domain)};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> done{0};
  std::atomic<uint64_t> wrong{0};
  const auto traffic = [&](uint64_t seed) {
    auto session = domain->attach_engine();
    std::mt19937_64 random(seed);
    const std::vector<uint8_t> bytes(5000, 0x66);
    std::vector<uint8_t> back(5000);
    while (!stop) {
      const uint64_t va = memory.address() + random() % (memory.size() - bytes.size());
      const Key now = key;
      if (write_all(*session, {now, 1, kRemoteWrite}, va, bytes) != Outcome::done) continue;
      ++done;
      if (read_all(*session, {now, 1, kRemoteRead}, va, back) == Outcome::done) wrong += back != bytes;
    }
  };
  std::thread first(traffic, 1);
  std::thread second(traffic, 2);
  for (int i = 0; i < 200; ++i) {
    // A second implicit region of the same memory, which the engines may use meanwhile.
    const Key next = add_implicit(*domain);
    const Key last = key.exchange(next);
    const uint64_t done_before = done;
    if (i % 20 == 0) {
      EXPECT_TRUE(eventually([&] { return done > done_before; }));
    }
    ASSERT_EQ(domain->deregister_region(last), 0);
    ASSERT_EQ(domain->deregister_region(last), ENOENT);
  }
  stop = true;
  first.join();
  second.join();
  EXPECT_EQ(wrong.load(), 0U);
  EXPECT_EQ(domain->deregister_region(key), 0);
  const Counters counters = domain->counters();
  EXPECT_EQ(counters.num_implicit_children, 0U);
  EXPECT_EQ(counters.num_odp_mrs, 0U);
  EXPECT_EQ(counters.num_odp_mr_pages, 0U);
  EXPECT_EQ(counters.pinned_bytes, 0U);
  EXPECT_FALSE(is_watched(memory.address(), memory.address() + memory.size()));
}

}  // namespace
}  // namespace faultline::odp::test::implicit_children_test
