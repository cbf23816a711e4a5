// SPDX-License-Identifier: BSD-3-Clause
// What the program may do to memory under a registered region.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test::invalidation_test {
namespace {

constexpr size_t kPages = 32;
constexpr size_t kPage = 4096;

class Invalidation : public testing::Test {
 protected:
  void SetUp() override { session_ = domain_->attach_engine(); }

  Target register_memory(uint64_t address, size_t bytes, uint32_t access) {
    const auto result = domain_->register_region(
        {.domain = 1, .address = address, .length_bytes = bytes, .iova = address, .access = access});
    EXPECT_EQ(result.error, 0);
    return {result.key, 1, kRemoteWrite};
  }
  Target on_demand(const Mapping& memory) {
    return register_memory(memory.address(), memory.size(),
                           kLocalWrite | kRemoteWrite | kRemoteRead | kOnDemand);
  }
  Target classic(const Mapping& memory) {
    return register_memory(memory.address(), memory.size(), kLocalWrite | kRemoteWrite | kRemoteRead);
  }
  Outcome fill(const Target& target, uint64_t va, size_t bytes, uint8_t value) {
    const std::vector<uint8_t> data(bytes, value);
    return write_all(*session_, target, va, data);
  }

  /// Runs `act` (a call of the program) on a separate thread while an engine polls.
  template <typename Act>
  void while_polling(Act act) {
    std::atomic<bool> over{false};
    std::thread program([&] {
      act();
      over = true;
    });
    while (!over) session_->enter();
    session_->leave();
    program.join();
    // The program continues once its event is read. The gate, under which every access is a miss, is lowered
    // a little later.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  std::unique_ptr<MemoryDomain> domain_ = make_domain();
  std::unique_ptr<EngineSession> session_;
};

TEST_F(Invalidation, DontneedMissesAgainAndServesZeroPages) {
  const Mapping memory(kPages);
  const Target target = on_demand(memory);
  ASSERT_EQ(fill(target, memory.address(), memory.size(), 0x11), Outcome::done);
  while_polling([&] { ASSERT_EQ(madvise(memory.data() + 4 * kPage, 8 * kPage, MADV_DONTNEED), 0); });
  session_->enter();
  EXPECT_EQ(session_->probe(target, memory.address() + 4 * kPage, 1), Outcome::miss);
  EXPECT_EQ(session_->probe(target, memory.address() + 11 * kPage, 1), Outcome::miss);
  EXPECT_EQ(session_->probe(target, memory.address() + 3 * kPage, 1), Outcome::done);
  EXPECT_EQ(session_->probe(target, memory.address() + 12 * kPage, 1), Outcome::done);
  session_->leave();
  EXPECT_EQ(fill(target, memory.address() + 5 * kPage, 10, 0x22), Outcome::done);
  EXPECT_EQ(memory.data()[5 * kPage], 0x22);
  EXPECT_EQ(memory.data()[5 * kPage + 10], 0);
  const Counters counters = domain_->counters();
  EXPECT_EQ(counters.num_invalidations, 1U);
  EXPECT_EQ(counters.num_invalidation_pages, 8U);
  EXPECT_EQ(counters.num_odp_mr_pages, kPages - 8 + 1);
}

TEST_F(Invalidation, FreeAndRemoveDropToo) {
  const Mapping memory(kPages);
  const Target target = on_demand(memory);
  ASSERT_EQ(fill(target, memory.address(), memory.size(), 0x11), Outcome::done);
  while_polling([&] { ASSERT_EQ(madvise(memory.data(), kPage, MADV_FREE), 0); });
  session_->enter();
  EXPECT_EQ(session_->probe(target, memory.address(), 1), Outcome::miss);
  session_->leave();

  const int file = memfd_create("removed", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, 4 * kPage), 0);
  auto* shared = static_cast<uint8_t*>(mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  const auto address = reinterpret_cast<uint64_t>(shared);
  const Target shared_target = register_memory(address, 4 * kPage, kLocalWrite | kRemoteWrite | kOnDemand);
  ASSERT_EQ(fill(shared_target, address, 4 * kPage, 0x33), Outcome::done);
  while_polling([&] { ASSERT_EQ(madvise(shared + kPage, kPage, MADV_REMOVE), 0); });
  session_->enter();
  EXPECT_EQ(session_->probe(shared_target, address + kPage, 1), Outcome::miss);
  EXPECT_EQ(session_->probe(shared_target, address, 1), Outcome::done);
  session_->leave();
  EXPECT_EQ(domain_->deregister_region(shared_target.key), 0);
  munmap(shared, 4 * kPage);
  close(file);
}

TEST_F(Invalidation, UnmappedPartOfEitherKindIsAViolationUntilRegisteredAgain) {
  for (const bool is_on_demand : {true, false}) {
    const Mapping memory(kPages);
    const Target target = is_on_demand ? on_demand(memory) : classic(memory);
    ASSERT_EQ(fill(target, memory.address(), memory.size(), 0x11), Outcome::done);
    uint8_t* hole = memory.data() + 8 * kPage;
    while_polling([&] { ASSERT_EQ(munmap(hole, 4 * kPage), 0); });
    session_->enter();
    EXPECT_EQ(session_->probe(target, memory.address() + 8 * kPage, 1), Outcome::violation);
    session_->leave();
    ASSERT_EQ(mmap(hole, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              hole);
    EXPECT_EQ(fill(target, memory.address() + 8 * kPage, kPage, 0x22), Outcome::violation);
    EXPECT_EQ(fill(target, memory.address() + 7 * kPage, 2 * kPage, 0x22), Outcome::violation);
    EXPECT_EQ(std::count(hole, hole + 4 * kPage, 0), 4 * static_cast<long>(kPage));
    EXPECT_EQ(fill(target, memory.address() + 7 * kPage, kPage, 0x44), Outcome::done);
    EXPECT_EQ(fill(target, memory.address() + 12 * kPage, kPage, 0x44), Outcome::done);
    const Target again = is_on_demand ? on_demand(memory) : classic(memory);
    EXPECT_EQ(fill(again, memory.address() + 8 * kPage, kPage, 0x55), Outcome::done);
    EXPECT_EQ(hole[0], 0x55);
    EXPECT_EQ(domain_->deregister_region(target.key), 0);
    EXPECT_EQ(domain_->deregister_region(again.key), 0);
  }
}

TEST_F(Invalidation, MapFixedAndMremapKillToo) {
  const Mapping memory(kPages);
  const Target target = on_demand(memory);
  ASSERT_EQ(fill(target, memory.address(), memory.size(), 0x11), Outcome::done);
  while_polling([&] {
    ASSERT_NE(
        mmap(memory.data(), kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        MAP_FAILED);
  });
  EXPECT_EQ(fill(target, memory.address(), 8, 0x22), Outcome::violation);
  EXPECT_EQ(memory.data()[0], 0);
  void* moved = nullptr;
  Mapping elsewhere(1);
  while_polling([&] {
    moved = mremap(memory.data() + 4 * kPage, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere.data());
  });
  ASSERT_EQ(moved, elsewhere.data());
  EXPECT_EQ(fill(target, memory.address() + 4 * kPage, 8, 0x22), Outcome::violation);
  EXPECT_EQ(elsewhere.data()[0], 0x11);
}

TEST_F(Invalidation, OneOfTwoOverlappingRegionsKeepsItsWatch) {
  const Mapping memory(kPages);
  const Target whole = on_demand(memory);
  const Target part =
      register_memory(memory.address() + 4 * kPage + 100, 8 * kPage, kLocalWrite | kRemoteWrite | kOnDemand);
  ASSERT_EQ(fill(part, memory.address() + 5 * kPage, kPage, 1), Outcome::done);
  ASSERT_EQ(fill(whole, memory.address(), memory.size(), 1), Outcome::done);
  EXPECT_EQ(domain_->deregister_region(part.key), 0);
  while_polling([&] { ASSERT_EQ(munmap(memory.data() + 6 * kPage, kPage), 0); });
  EXPECT_EQ(fill(whole, memory.address() + 6 * kPage, 8, 2), Outcome::violation);
}

TEST_F(Invalidation, TwoDomainsShareMemory) {
  const Mapping memory(kPages);
  auto other = make_domain();
  const Target target = on_demand(memory);
  const auto theirs = other->register_region({.domain = 1,
                                              .address = memory.address(),
                                              .length_bytes = memory.size(),
                                              .iova = 0,
                                              .access = kRemoteRead | kOnDemand});
  ASSERT_EQ(theirs.error, 0);
  ASSERT_EQ(fill(target, memory.address(), memory.size(), 1), Outcome::done);
  auto their_session = other->attach_engine();
  std::array<uint8_t, 8> bytes{};
  const Target their_target{theirs.key, 1, kRemoteRead};
  ASSERT_EQ(read_all(*their_session, their_target, 0, bytes), Outcome::done);
  while_polling([&] { ASSERT_EQ(munmap(memory.data(), memory.size()), 0); });
  EXPECT_EQ(fill(target, memory.address(), 8, 2), Outcome::violation);
  EXPECT_EQ(read_all(*their_session, their_target, 0, bytes), Outcome::violation);
}

TEST_F(Invalidation, WhatComesWithoutAnEventIsCaughtByTheCopy) {
  // mprotect and truncation send no event: the copy faults, the pager examines the memory again, and the
  // outcome is a violation.
  const Mapping memory(kPages);
  const Target target = on_demand(memory);
  ASSERT_EQ(fill(target, memory.address(), memory.size(), 1), Outcome::done);
  ASSERT_EQ(mprotect(memory.data(), kPage, PROT_READ), 0);
  EXPECT_EQ(fill(target, memory.address(), 8, 2), Outcome::violation);
  EXPECT_EQ(memory.data()[0], 1);
  ASSERT_EQ(mprotect(memory.data(), kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(fill(target, memory.address(), 8, 2), Outcome::done);

  const int file = memfd_create("truncated", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, 4 * kPage), 0);
  void* shared = mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const auto address = reinterpret_cast<uint64_t>(shared);
  const Target on_file = register_memory(address, 4 * kPage, kLocalWrite | kRemoteWrite | kOnDemand);
  const Target classic_on_file = register_memory(address, 4 * kPage, kLocalWrite | kRemoteWrite);
  ASSERT_EQ(fill(on_file, address, 4 * kPage, 3), Outcome::done);
  ASSERT_EQ(ftruncate(file, kPage), 0);
  EXPECT_EQ(fill(on_file, address + 2 * kPage, 8, 4), Outcome::violation);
  EXPECT_EQ(fill(classic_on_file, address + 2 * kPage, 8, 4), Outcome::violation);
  EXPECT_EQ(fill(on_file, address, 8, 4), Outcome::done);
  EXPECT_GE(domain_->counters().copy_faults_caught, 3U);
  EXPECT_GE(domain_->counters().num_failed_resolutions, 2U);
  EXPECT_EQ(domain_->deregister_region(on_file.key), 0);
  EXPECT_EQ(domain_->deregister_region(classic_on_file.key), 0);
  munmap(shared, 4 * kPage);
  close(file);
}

TEST_F(Invalidation, AHoleFilledAfterRegistrationIsWatchedToo) {
  const Mapping memory(kPages);
  ASSERT_EQ(munmap(memory.data() + 4 * kPage, 4 * kPage), 0);
  const Target target = on_demand(memory);
  EXPECT_EQ(fill(target, memory.address() + 4 * kPage, 8, 1), Outcome::violation);
  uint8_t* hole = memory.data() + 4 * kPage;
  ASSERT_EQ(mmap(hole, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            hole);
  EXPECT_EQ(fill(target, memory.address() + 4 * kPage, 8, 1), Outcome::done);
  while_polling([&] { ASSERT_EQ(munmap(hole, 4 * kPage), 0); });
  session_->enter();
  EXPECT_EQ(session_->probe(target, memory.address() + 4 * kPage, 8), Outcome::violation);
  session_->leave();
}

TEST_F(Invalidation, AChildKeepsItsBytesAfterFork) {
  const Mapping memory(kPages);
  const Target target = on_demand(memory);
  ASSERT_EQ(fill(target, memory.address(), memory.size(), 0x11), Outcome::done);
  std::array<int, 2> go{};
  ASSERT_EQ(pipe(go.data()), 0);
  pid_t child = -1;
  while_polling([&] {
    child = fork();
    if (child == 0) {
      char byte = 0;
      const bool told = read(go[0], &byte, 1) == 1;
      const bool intact =
          std::count(memory.data(), memory.data() + memory.size(), 0x11) == static_cast<long>(memory.size());
      _exit(told && intact ? 0 : 1);
    }
  });
  ASSERT_GT(child, 0);
  EXPECT_EQ(fill(target, memory.address(), memory.size(), 0x22), Outcome::done);
  EXPECT_EQ(memory.data()[0], 0x22);
  ASSERT_EQ(write(go[1], "x", 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(go[0]);
  close(go[1]);
}

TEST_F(Invalidation, APrivateFileKeepsItsBytes) {
  const int file = memfd_create("private", MFD_CLOEXEC);
  std::vector<uint8_t> content(2 * kPage, 0x66);
  ASSERT_EQ(write(file, content.data(), content.size()), static_cast<ssize_t>(content.size()));
  void* memory = mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  const auto address = reinterpret_cast<uint64_t>(memory);
  Target target = register_memory(address, 2 * kPage, kLocalWrite | kRemoteWrite | kRemoteRead | kOnDemand);
  std::array<uint8_t, 16> bytes{};
  target.need = kRemoteRead;
  EXPECT_EQ(read_all(*session_, target, address, bytes), Outcome::done);
  EXPECT_EQ(bytes[0], 0x66);
  target.need = kRemoteWrite;
  session_->enter();
  EXPECT_EQ(session_->write(target, address, bytes), Outcome::miss) << "resident for reading only";
  session_->leave();
  EXPECT_EQ(fill(target, address, kPage, 0x77), Outcome::done);
  ASSERT_EQ(pread(file, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(bytes[0], 0x66);
  EXPECT_EQ(domain_->deregister_region(target.key), 0);
  munmap(memory, 2 * kPage);
  close(file);
}

TEST_F(Invalidation, WithoutAMonitorAnUnmapIsStillAViolation) {
  auto bare = make_domain({.pin_budget_bytes = 0, .monitor_invalidations = false, .realtime_pager = false});
  const Mapping memory(kPages);
  for (const uint32_t access : {kLocalWrite | kRemoteWrite | kOnDemand, kLocalWrite | kRemoteWrite}) {
    const Mapping own(4);
    const auto result = bare->register_region({.domain = 1,
                                               .address = own.address(),
                                               .length_bytes = own.size(),
                                               .iova = own.address(),
                                               .access = access});
    ASSERT_EQ(result.error, 0);
    auto session = bare->attach_engine();
    const Target target{result.key, 1, kRemoteWrite};
    const std::vector<uint8_t> bytes(64, 1);
    ASSERT_EQ(write_all(*session, target, own.address(), bytes), Outcome::done);
    munmap(own.data(), own.size());
    EXPECT_EQ(write_all(*session, target, own.address(), bytes), Outcome::violation);
  }
  EXPECT_EQ(bare->counters().pinned_bytes, 0U);
}

/// mremap sends a second event, for the place that it leaves, after its first event has been read and after
/// the kernel has freed the place. Another region may be registered there in between; the late event must not
/// invalidate it.
TEST_F(Invalidation, LateEventOfAMoveSparesWhatHasTakenThePlace) {
  constexpr int kProtection = PROT_READ | PROT_WRITE;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
  constexpr uint32_t kAccess = kLocalWrite | kRemoteWrite | kOnDemand;
  size_t taken = 0;
  size_t lost = 0;
  for (int round = 0; round < 200; ++round) {
    auto* const room = static_cast<uint8_t*>(mmap(nullptr, 2 * kPages * kPage, kProtection, kFlags, -1, 0));
    ASSERT_NE(room, MAP_FAILED);
    constexpr size_t kBytes = kPages * kPage;
    const auto address = reinterpret_cast<uint64_t>(room);
    const Target old = register_memory(address, kBytes, kAccess);
    std::atomic<bool> over{false};
    std::thread mover([&] {
      EXPECT_EQ(mremap(room, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, room + kBytes), room + kBytes);
      over = true;
    });
    bool has_taken = false;
    while (!has_taken && !over)
      has_taken = mmap(room, kBytes, kProtection, kFlags | MAP_FIXED_NOREPLACE, -1, 0) == room;
    if (has_taken) {
      const Target target = register_memory(address, kBytes, kAccess);
      mover.join();
      ++taken;
      lost += fill(target, address, kPage, 7) == Outcome::done ? 0 : 1;
      EXPECT_EQ(domain_->deregister_region(target.key), 0);
    } else {
      mover.join();
    }
    EXPECT_EQ(domain_->deregister_region(old.key), 0);
    EXPECT_EQ(munmap(room, 2 * kBytes), 0);
  }
  EXPECT_EQ(lost, 0U) << "of " << taken;
}

}  // namespace
}  // namespace faultline::odp::test::invalidation_test
