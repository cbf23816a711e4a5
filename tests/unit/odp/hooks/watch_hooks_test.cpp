// SPDX-License-Identifier: BSD-3-Clause
// mremap(2) and the program's own userfaultfd on registered memory behave as without a region.
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "odp/mappings/pagemap_scan.hpp"
#include "tests/hang_limit.hpp"
#include "tests/unit/odp/invalidation/watch_fixture.hpp"

namespace faultline::odp::test::watch_hooks_test {
namespace {

enum class Move : uint8_t {
  grow_in_place,
  grow_and_move,
  shrink,
  move,
  move_and_leave,
  grow_without_room,
  grow_too_far
};
constexpr std::array<const char*, 7> kMoveNames{"grow_in_place",  "grow_and_move",     "shrink",      "move",
                                                "move_and_leave", "grow_without_room", "grow_too_far"};

constexpr size_t kPages = 16;
constexpr size_t kBytes = kPages * kPage;
constexpr size_t kRegionPage = 5;

/// What the program observes after its mremap.
struct Seen {
  int error = 0;
  bool in_place = false;
  std::array<bool, kPages> left{};          ///< still mapped pages of the old place
  std::array<uint8_t, 2 * kPages> moved{};  ///< first byte of each page of the result
  bool operator==(const Seen&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Seen& seen) {
  out << "errno " << seen.error << (seen.in_place ? ", in place, left " : ", left ");
  for (const bool left : seen.left) out << (left ? '1' : '0');
  out << ", moved";
  for (const uint8_t moved : seen.moved) out << ' ' << unsigned{moved};
  return out;
}

bool is_mapped(const uint8_t* page) {
  unsigned char in_core = 0;
  return mincore(const_cast<uint8_t*>(page), kPage, &in_core) == 0;
}

bool has_pagemap_scan() {
  PagemapScan scan{};
  scan.size = sizeof scan;
  const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  const bool has = ioctl(pagemap, kPagemapScan, &scan) >= 0 || errno != ENOTTY;
  close(pagemap);
  return has;
}

class MovedMemory : public Watch, public testing::WithParamInterface<std::tuple<Move, bool>> {
 protected:
  struct Place {
    uint8_t* memory;
    uint8_t* elsewhere;
  };
  static Place make_place(Move move) {
    auto* const room = static_cast<uint8_t*>(mmap(low_address(8 * kBytes), 8 * kBytes, PROT_READ | PROT_WRITE,
                                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    EXPECT_NE(room, MAP_FAILED);
    // Holes on both sides, since the kernel may merge the mapping with a neighbour.
    bare_munmap(room, 8 * kBytes);
    uint8_t* const memory = room + kBytes;
    EXPECT_EQ(bare_mmap(memory, kBytes), memory);
    if (move == Move::grow_and_move || move == Move::grow_without_room) {
      EXPECT_EQ(syscall(SYS_mmap, memory + kBytes, kPage, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                reinterpret_cast<long>(memory + kBytes));
    }
    return {memory, room + 4 * kBytes};
  }
  static void fill_all(uint8_t* memory) {
    for (size_t page = 0; page < kPages; ++page) memory[page * kPage] = static_cast<uint8_t>(page + 1);
  }

  static Seen call(Move move, const Place& place) {
    void* result = MAP_FAILED;
    switch (move) {
      case Move::grow_in_place:
      case Move::grow_without_room:
        result = mremap(place.memory, kBytes, 2 * kBytes, 0);
        break;
      case Move::grow_and_move:
        result = mremap(place.memory, kBytes, 2 * kBytes, MREMAP_MAYMOVE);
        break;
      case Move::shrink:
        result = mremap(place.memory, kBytes, kBytes / 4, 0);
        break;
      case Move::move:
        result = mremap(place.memory, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, place.elsewhere);
        break;
      case Move::move_and_leave:
        result = mremap(place.memory, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                        place.elsewhere);
        break;
      case Move::grow_too_far:
        result = mremap(place.memory, kBytes, size_t{1} << 62, MREMAP_MAYMOVE);
        break;
    }
    Seen seen{.error = result == MAP_FAILED ? errno : 0,
              .in_place = result == place.memory,
              .left = {},
              .moved = {}};
    for (size_t page = 0; page < kPages; ++page) seen.left[page] = is_mapped(place.memory + page * kPage);
    for (size_t page = 0; page < 2 * kPages && result != MAP_FAILED; ++page) {
      const uint8_t* const at = static_cast<uint8_t*>(result) + page * kPage;
      if (is_mapped(at)) seen.moved[page] = at[0];
    }
    return seen;
  }
};

TEST_P(MovedMemory, IsAsWithoutARegion) {
  const auto [move, touched_before] = GetParam();
  if (!touched_before && !has_pagemap_scan())
    GTEST_SKIP() << "before Linux 6.7 (PAGEMAP_SCAN) fresh memory that was watched in part stays in parts";
  const Place control = make_place(move);
  fill_all(control.memory);
  const Seen expected = call(move, control);

  start();
  const Place place = make_place(move);
  if (touched_before) fill_all(place.memory);
  uint8_t* const page = place.memory + kRegionPage * kPage;
  const Target target = register_memory(page, kPage);
  if (!touched_before) fill_all(place.memory);
  EXPECT_EQ(call(move, place), expected);

  // A region covers its addresses, not the bytes that have moved.
  const bool is_left = expected.left[kRegionPage];
  EXPECT_EQ(fill(target, page, kPage, 0x33), is_left ? Outcome::done : Outcome::violation);
  if (!is_left) return;
  EXPECT_EQ(page[kPage - 1], 0x33);
  EXPECT_TRUE(is_watched(target, page));
}

INSTANTIATE_TEST_SUITE_P(All, MovedMemory,
                         testing::Combine(testing::Values(Move::grow_in_place, Move::grow_and_move,
                                                          Move::shrink, Move::move, Move::move_and_leave,
                                                          Move::grow_without_room, Move::grow_too_far),
                                          testing::Bool()),
                         [](const auto& trial) {
                           return std::string(kMoveNames[static_cast<size_t>(std::get<0>(trial.param))]) +
                                  (std::get<1>(trial.param) ? "_touched" : "_fresh");
                         });

class ProgramsUserfault : public Watch {
 protected:
  void SetUp() override {
    if (own_.fd() < 0) GTEST_SKIP() << "the kernel refuses userfaultfd here";
    start();
  }
  const ProgramUserfault own_{UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_THREAD_ID};
  const Mapping memory_{8};
};

TEST_F(ProgramsUserfault, MayHaveRegisteredMemory) {
  const Target target = register_memory(memory_.data(), memory_.size());
  const Mapping other(1);
  const Target other_target = register_memory(other.data(), other.size());
  ASSERT_EQ(fill(target, memory_.data(), kPage, 1), Outcome::done);
  ASSERT_EQ(own_.watch(memory_.data(), memory_.size(), UFFDIO_REGISTER_MODE_MISSING), 0);
  EXPECT_EQ(domain_->counters().pinned_bytes, 0U) << "a pin may wait for the program";
  ASSERT_EQ(fill(target, memory_.data(), kPage, 2), Outcome::done) << "the page that was there";

  // The program has not provided the page yet: a pager thread waits for it, the engine does not.
  const std::vector<uint8_t> bytes(kPage, 3);
  const uint64_t va = memory_.address() + kPage;
  session_->enter();
  ASSERT_EQ(session_->write(target, va, bytes), Outcome::miss);
  EXPECT_FALSE(session_->serve_fault({target, va, bytes.size(), {5}})) << "left to the threads";
  ASSERT_TRUE(session_->request_fault({target, va, bytes.size(), {5}}));
  session_->leave();
  const uffd_msg fault = own_.next_fault();
  ASSERT_EQ(fault.event, UFFD_EVENT_PAGEFAULT);
  EXPECT_EQ(fault.arg.pagefault.address & ~(kPage - 1), va);
  EXPECT_NE(fault.arg.pagefault.feat.ptid, static_cast<uint32_t>(gettid()));
  {
    const uint64_t other_va = other.address();
    session_->enter();
    const Outcome first = session_->write(other_target, other_va, bytes);
    if (first == Outcome::miss) {
      ASSERT_TRUE(session_->request_fault({other_target, other_va, bytes.size(), {6}}));
    }
    session_->leave();
    if (first == Outcome::miss) {
      EXPECT_EQ(next_resolution(*session_).waiter.bits, 6U) << "behind the program's page";
      session_->leave();
    }
  }
  const std::vector<uint8_t> page(kPage, 0x77);
  ASSERT_EQ(own_.provide(memory_.data() + kPage, page.data()), 0);
  EXPECT_EQ(next_resolution(*session_).outcome, Outcome::done);
  session_->leave();
  EXPECT_EQ(fill(target, memory_.data() + kPage, kPage, 4), Outcome::done);
  EXPECT_EQ(memory_.data()[2 * kPage - 1], 4);

  ASSERT_EQ(own_.unwatch(memory_.data(), memory_.size()), 0);
  EXPECT_EQ(fill(target, memory_.data() + 2 * kPage, kPage, 5), Outcome::done);
  EXPECT_TRUE(is_watched(target, memory_.data() + kPage));
}

TEST_F(ProgramsUserfault, LeavesTheWatchWhereItIsRefused) {
  const Target target = register_memory(memory_.data(), memory_.size());
  ASSERT_EQ(fill(target, memory_.data(), kPage, 1), Outcome::done);
  EXPECT_EQ(own_.watch(memory_.data(), memory_.size(), 0), EINVAL);
  uffdio_register* const nowhere = nullptr;
  EXPECT_EQ(ioctl(own_.fd(), UFFDIO_REGISTER, nowhere), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_TRUE(is_watched(target, memory_.data()));
}

TEST_F(ProgramsUserfault, MayHaveMemoryBesideAnImplicitRegionsPages) {
  const RegionResult result = domain_->register_region({1, 0, ~uint64_t{0}, 0, kWatchAccess});
  ASSERT_EQ(result.error, 0);
  const Target target{result.key, 1, kRemoteWrite};
  ASSERT_EQ(fill(target, memory_.data(), kPage, 1), Outcome::done);
  ASSERT_EQ(own_.watch(memory_.data() + 4 * kPage, 4 * kPage, UFFDIO_REGISTER_MODE_MISSING), 0);
  EXPECT_EQ(fill(target, memory_.data() + kPage, kPage, 2), Outcome::done);
}

/// The engine's store must not wait for the program's handler, which may need the engine to respond.
TEST_F(ProgramsUserfault, WriteProtectionIsAMissToAnEngine) {
  ASSERT_EQ(own_.watch(memory_.data(), memory_.size(), UFFDIO_REGISTER_MODE_WP), 0);
  const Target target = register_memory(memory_.data(), memory_.size());
  ASSERT_EQ(fill(target, memory_.data(), memory_.size(), 1), Outcome::done);
  EXPECT_EQ(domain_->counters().pinned_bytes, 0U) << "a pin may wait for the program";
  ASSERT_EQ(own_.write_protect(memory_.data(), memory_.size(), true), 0);

  std::atomic<uint32_t> waiting_thread{0};
  std::thread handler([&] {
    const uffd_msg fault = own_.next_fault();
    waiting_thread = fault.arg.pagefault.feat.ptid;
    EXPECT_EQ(own_.write_protect(memory_.data(), kPage, false), 0);
  });
  EXPECT_EQ(fill(target, memory_.data(), kPage, 2), Outcome::done);
  handler.join();
  EXPECT_NE(waiting_thread, 0U);
  EXPECT_NE(waiting_thread, static_cast<uint32_t>(gettid()))
      << "the engine slept in the program's protection";
  EXPECT_EQ(memory_.data()[0], 2);
  std::vector<uint8_t> bytes(kPage);
  EXPECT_EQ(read_all(*session_, {target.key, 1, kRemoteRead}, memory_.address() + kPage, bytes),
            Outcome::done);
  EXPECT_EQ(bytes[0], 1);
  EXPECT_EQ(domain_->counters().pinned_bytes, 0U);
}

/// The same if the region existed first.
TEST_F(ProgramsUserfault, WriteProtectsRegisteredMemory) {
  const Target target = register_memory(memory_.data(), memory_.size());
  ASSERT_EQ(fill(target, memory_.data(), memory_.size(), 1), Outcome::done);
  ASSERT_EQ(own_.watch(memory_.data(), memory_.size(), UFFDIO_REGISTER_MODE_WP), 0);
  ASSERT_EQ(fill(target, memory_.data(), memory_.size(), 2), Outcome::done);
  ASSERT_EQ(own_.write_protect(memory_.data(), memory_.size(), true), 0);
  session_->enter();
  EXPECT_EQ(session_->write(target, memory_.address(), std::vector<uint8_t>(8, 3)), Outcome::miss);
  session_->leave();
  ASSERT_EQ(own_.write_protect(memory_.data(), memory_.size(), false), 0);
  EXPECT_EQ(fill(target, memory_.data(), memory_.size(), 3), Outcome::done);
}

/// The handler saves the page that a peer's write waits for, by a transfer, before it unblocks the write.
TEST_F(ProgramsUserfault, AHandlerMayReadThePageThatItProtects) {
  const Target target = register_memory(memory_.data(), memory_.size());
  const Target reader{target.key, 1, kRemoteRead};
  ASSERT_EQ(fill(target, memory_.data(), memory_.size(), 1), Outcome::done);
  ASSERT_EQ(own_.watch(memory_.data(), memory_.size(), UFFDIO_REGISTER_MODE_WP), 0);
  ASSERT_EQ(fill(target, memory_.data(), memory_.size(), 2), Outcome::done);
  ASSERT_EQ(own_.write_protect(memory_.data(), memory_.size(), true), 0);
  const std::vector<uint8_t> bytes(8, 3);
  session_->enter();
  ASSERT_EQ(session_->write(target, memory_.address(), bytes), Outcome::miss);
  ASSERT_TRUE(session_->request_fault({target, memory_.address(), bytes.size(), {5}}));
  session_->leave();
  ASSERT_EQ(own_.next_fault().event, UFFD_EVENT_PAGEFAULT);

  alarm(faultline::test::hang_seconds());  // a read that waits for the write ends the test
  std::vector<uint8_t> saved(kPage);
  EXPECT_EQ(read_all(*session_, reader, memory_.address(), saved), Outcome::done);
  EXPECT_EQ(saved[0], 2);
  ASSERT_EQ(own_.write_protect(memory_.data(), kPage, false), 0);
  EXPECT_EQ(next_resolution(*session_).waiter.bits, 5U);
  session_->leave();
  EXPECT_EQ(fill(target, memory_.data(), bytes.size(), 3), Outcome::done);
  alarm(0);
  EXPECT_EQ(memory_.data()[0], 3);
}

}  // namespace
}  // namespace faultline::odp::test::watch_hooks_test
