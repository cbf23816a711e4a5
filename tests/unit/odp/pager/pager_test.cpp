// SPDX-License-Identifier: BSD-3-Clause
// How faults are served: many at once, slow ones next to others, their order, and those that cannot be
// served.
#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <stdexcept>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "odp/regions/address_space.hpp"
#include "tests/unit/odp/pager/slow_memory.hpp"

namespace faultline::odp::test::pager_test {
namespace {

constexpr size_t kPage = 4096;
constexpr uint32_t kAccess = kLocalWrite | kRemoteWrite | kRemoteRead | kOnDemand;

Target add_region(MemoryDomain& domain, uint64_t address, uint64_t length_bytes) {
  const auto result = domain.register_region(
      {.domain = 1, .address = address, .length_bytes = length_bytes, .iova = address, .access = kAccess});
  EXPECT_EQ(result.error, 0);
  return {result.key, 1, kRemoteWrite};
}
Target add_region(MemoryDomain& domain, const Mapping& memory) {
  return add_region(domain, memory.address(), memory.size());
}

bool ask(EngineSession& session, const FaultRequest& request) {
  session.enter();
  const bool queued = session.request_fault(request);
  session.leave();
  return queued;
}

/// Asks for a service on this thread.
bool serve(EngineSession& session, const FaultRequest& request) {
  session.enter();
  const bool served = session.serve_fault(request);
  session.leave();
  return served;
}

/// Takes a resolution if one is available.
bool take_one(EngineSession& session, Resolution& resolution) {
  session.enter();
  const bool taken = session.take_resolutions({&resolution, 1}) == 1;
  session.leave();
  return taken;
}

Resolution wait_for_one(EngineSession& session) {
  Resolution resolution{{~uint64_t{0}}, Outcome::miss};
  EXPECT_TRUE(eventually([&] { return take_one(session, resolution); }));
  return resolution;
}

/// A new file, in memory or on the disk below the working directory.
class File {
 public:
  explicit File(bool in_memory) {
    descriptor_ =
        in_memory ? memfd_create("pager_test", MFD_CLOEXEC) : open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor_ < 0) throw std::runtime_error("no file");
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(descriptor_); }
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

TEST(Pager, WaitersOnOneColdPageCostOneService) {
  auto domain = make_domain();
  const Mapping memory(1);
  const Target target = add_region(*domain, memory);
  constexpr uint64_t kWaiters = 64;
  constexpr size_t kSessions = 8;
  std::array<std::unique_ptr<EngineSession>, kSessions> sessions;
  for (auto& session : sessions) session = domain->attach_engine();
  for (uint64_t waiter = 0; waiter < kWaiters; ++waiter)
    ASSERT_TRUE(ask(*sessions[waiter % kSessions], {target, memory.address() + waiter * 8, 8, {waiter}}));
  std::array<bool, kWaiters> answered{};
  for (uint64_t i = 0; i < kWaiters; ++i) {
    const Resolution resolution = wait_for_one(*sessions[i % kSessions]);
    EXPECT_EQ(resolution.outcome, Outcome::done);
    EXPECT_FALSE(answered.at(resolution.waiter.bits));
    answered[resolution.waiter.bits] = true;
  }
  const Counters counters = domain->counters();
  EXPECT_EQ(counters.num_page_faults, 1U);
  EXPECT_EQ(counters.num_page_fault_pages, 1U);
  EXPECT_EQ(counters.faults_coalesced, kWaiters - 1);
}

TEST(Pager, WhoeverWantsPagesInServiceWaitsForThatService) {
  auto domain = make_domain();
  const Mapping memory(SlowMemory::kPages);
  const SlowMemory slow(memory.data(), SlowMemory::kPages);
  SKIP_WITHOUT_SLOW(slow);
  const Target target = add_region(*domain, memory);
  auto first = domain->attach_engine();
  auto others = domain->attach_engine();
  ASSERT_TRUE(ask(*first, {target, memory.address(), memory.size(), {0}}));
  ASSERT_TRUE(slow.wait_for_fault());
  constexpr uint64_t kWaiters = 63;
  for (uint64_t waiter = 0; waiter < kWaiters; ++waiter)
    ASSERT_TRUE(ask(*others, {target, memory.address(), memory.size(), {waiter}}));
  // Requests are served in order: after this one, the pager has examined all waiting requests.
  const Mapping other(1);
  const Target witness = add_region(*domain, other);
  ASSERT_TRUE(ask(*first, {witness, other.address(), 1, {1}}));
  EXPECT_EQ(wait_for_one(*first).waiter.bits, 1U);
  Resolution early;
  EXPECT_FALSE(take_one(*others, early));
  ASSERT_TRUE(slow.deliver());
  EXPECT_EQ(wait_for_one(*first).outcome, Outcome::done);
  for (uint64_t i = 0; i < kWaiters; ++i) EXPECT_EQ(wait_for_one(*others).outcome, Outcome::done);
  EXPECT_EQ(domain->counters().num_page_faults, 2U) << "the slow one and the witness";
  EXPECT_EQ(domain->counters().faults_coalesced, kWaiters);
  EXPECT_EQ(memory.data()[memory.size() - 1], SlowMemory::kFill);
}

/// Serves the pages of `memory` (a thousand faults) while the page of another service is pending.
void serve_others(EngineSession& session, const Target& target, const Mapping& memory) {
  const std::array<uint8_t, 8> bytes{1, 2, 3, 4, 5, 6, 7, 8};
  for (uint64_t at = 0; at < memory.size(); at += kPage)
    ASSERT_EQ(write_all(session, target, memory.address() + at, bytes), Outcome::done);
}

TEST(Pager, SlowPagesDelayNobodyElses) {
  auto domain = make_domain({.pager_threads = 4});
  constexpr size_t kSlow = 3;
  const Mapping memory(kSlow * SlowMemory::kPages);
  const Mapping others(1000);
  std::array<std::unique_ptr<SlowMemory>, kSlow> slow;
  const Target other_target = add_region(*domain, others);
  auto session = domain->attach_engine();
  for (uint64_t i = 0; i < kSlow; ++i) {
    uint8_t* const part = memory.data() + i * SlowMemory::kPages * kPage;
    slow[i] = std::make_unique<SlowMemory>(part, SlowMemory::kPages);
    SKIP_WITHOUT_SLOW(*slow[i]);
    const auto address = reinterpret_cast<uint64_t>(part);
    const Target target = add_region(*domain, address, SlowMemory::kPages * kPage);
    ASSERT_TRUE(ask(*session, {target, address, SlowMemory::kPages * kPage, {100 + i}}));
    ASSERT_TRUE(slow[i]->wait_for_fault());
  }
  serve_others(*session, other_target, others);
  EXPECT_EQ(domain->counters().num_page_faults, 1000U);
  EXPECT_TRUE(session->has_outstanding_faults());
  // The pages are delivered in another order than they were requested.
  for (uint64_t i = kSlow; i-- > 0;) {
    ASSERT_TRUE(slow[i]->deliver());
    const Resolution resolution = wait_for_one(*session);
    EXPECT_EQ(resolution.waiter.bits, 100 + i);
    EXPECT_EQ(resolution.outcome, Outcome::done);
  }
}

TEST(Pager, MoreSlowPagesThanThreadsDelayNobodyElses) {
  constexpr unsigned kThreads = 3;
  constexpr size_t kSlow = 2 * kThreads;
  auto domain = make_domain({.pager_threads = kThreads});
  const Mapping memory(kSlow * SlowMemory::kPages);
  const Mapping others(1000);
  const SlowMemory slow(memory.data(), kSlow * SlowMemory::kPages);
  SKIP_WITHOUT_SLOW(slow);
  const Target target = add_region(*domain, memory);
  const Target other_target = add_region(*domain, others);
  auto session = domain->attach_engine();
  constexpr uint64_t kEach = SlowMemory::kPages * kPage;
  for (uint64_t i = 0; i < kSlow; ++i)
    ASSERT_TRUE(ask(*session, {target, memory.address() + i * kEach, kEach, {100 + i}}));
  ASSERT_TRUE(slow.wait_for_fault());
  auto other_session = domain->attach_engine();
  ASSERT_TRUE(ask(*other_session, {other_target, others.address(), 1, {1}}));
  EXPECT_EQ(wait_for_one(*other_session).waiter.bits, 1U);
  if (!HasFailure()) serve_others(*other_session, other_target, others);
  ASSERT_TRUE(slow.deliver());
  for (size_t i = 0; i < kSlow; ++i) EXPECT_EQ(wait_for_one(*session).outcome, Outcome::done);
}

TEST(Pager, OneSlowPageOfAnothersUserfaultfdDelaysNobody) {
  auto domain = make_domain();
  const Mapping memory(1);
  const Mapping others(1000);
  const SlowMemory slow(memory.data(), 1);
  SKIP_WITHOUT_SLOW(slow);
  const Target target = add_region(*domain, memory);
  const Target other_target = add_region(*domain, others);
  auto session = domain->attach_engine();
  ASSERT_TRUE(ask(*session, {target, memory.address(), 1, {100}}));
  ASSERT_TRUE(slow.wait_for_fault());
  auto other_session = domain->attach_engine();
  ASSERT_TRUE(ask(*other_session, {other_target, others.address(), 1, {1}}));
  EXPECT_EQ(wait_for_one(*other_session).waiter.bits, 1U);
  ASSERT_TRUE(slow.deliver());
  EXPECT_EQ(wait_for_one(*session).waiter.bits, 100U);
}

TEST(Pager, UrgentFaultsGoFirst) {
  auto domain = make_domain({.pager_threads = 1});
  const Mapping memory(SlowMemory::kPages);
  const SlowMemory slow(memory.data(), SlowMemory::kPages);
  SKIP_WITHOUT_SLOW(slow);
  const Target target = add_region(*domain, memory);
  constexpr uint64_t kEach = 60;
  constexpr uint64_t kPagesOfOne = 3;  // shorter ranges need no pager thread
  const Mapping others(2 * kEach * kPagesOfOne);
  const Target other_target = add_region(*domain, others);
  auto session = domain->attach_engine();
  constexpr uint64_t kHolder = 1000;
  // The only pager thread is blocked.
  ASSERT_TRUE(ask(*session, {target, memory.address(), memory.size(), {kHolder}}));
  ASSERT_TRUE(slow.wait_for_fault());
  for (uint64_t i = 0; i < 2 * kEach; ++i) {
    const bool urgent = i % 2 == 1;
    ASSERT_TRUE(
        ask(*session,
            {other_target, others.address() + i * kPagesOfOne * kPage, kPagesOfOne * kPage, {i}, urgent}));
  }
  ASSERT_TRUE(slow.deliver());
  EXPECT_EQ(wait_for_one(*session).waiter.bits, kHolder);
  for (uint64_t i = 0; i < 2 * kEach; ++i) {
    const Resolution resolution = wait_for_one(*session);
    EXPECT_EQ(resolution.waiter.bits % 2, i < kEach ? 1U : 0U) << "answer " << i;
    EXPECT_EQ(resolution.outcome, Outcome::done);
  }
}

TEST(Pager, PageThatCostsLittleNeedsNoThreadOfIts) {
  auto domain = make_domain({.pager_threads = 1});
  const Mapping memory(SlowMemory::kPages);
  const SlowMemory slow(memory.data(), SlowMemory::kPages);
  SKIP_WITHOUT_SLOW(slow);
  const Target target = add_region(*domain, memory);
  const Mapping others(8);
  const Target other_target = add_region(*domain, others);
  auto session = domain->attach_engine();
  constexpr uint64_t kHolder = 1000;
  // The only pager thread is blocked.
  ASSERT_TRUE(ask(*session, {target, memory.address(), memory.size(), {kHolder}}));
  ASSERT_TRUE(slow.wait_for_fault());
  ASSERT_TRUE(serve(*session, {other_target, others.address() + kPage, 2 * kPage, {1}}));
  Resolution resolution;
  EXPECT_FALSE(take_one(*session, resolution)) << "the answer was that of the call";
  session->enter();
  EXPECT_EQ(session->probe(other_target, others.address() + kPage, 2 * kPage), Outcome::done);
  EXPECT_EQ(session->probe(other_target, others.address() + 3 * kPage, 1), Outcome::miss);
  session->leave();
  // A slow page is left to the pager thread, even if the range is short.
  EXPECT_FALSE(serve(*session, {target, memory.address() + kPage, 1, {2}}));
  ASSERT_TRUE(ask(*session, {target, memory.address() + kPage, 1, {2}}));
  EXPECT_FALSE(take_one(*session, resolution));
  ASSERT_TRUE(slow.deliver());
  EXPECT_NE(wait_for_one(*session).waiter.bits, wait_for_one(*session).waiter.bits);
  const Counters counters = domain->counters();
  EXPECT_EQ(counters.faults_served_at_once, 1U);
  EXPECT_GE(counters.num_page_faults, 2U);
  RegionCounters of_region;
  ASSERT_TRUE(domain->region_counters(other_target.key, of_region));
  EXPECT_EQ(of_region.page_faults, 2U);
}

TEST(Pager, EngineWaitsForNobodyWhoHoldsTheAddressSpace) {
  auto domain = make_domain();
  const Mapping memory(4);
  const Target target = add_region(*domain, memory);
  auto session = domain->attach_engine();
  {
    const AddressSpaceCall of_another_thread;
    EXPECT_FALSE(serve(*session, {target, memory.address(), 1, {1}}));
    ASSERT_TRUE(ask(*session, {target, memory.address(), 1, {1}}));
    EXPECT_EQ(wait_for_one(*session).outcome, Outcome::done);
    EXPECT_EQ(domain->counters().faults_served_at_once, 0U);
  }
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(madvise(memory.data(), kPage, MADV_DONTNEED), 0);
    return serve(*session, {target, memory.address(), 1, {2}}) &&
           domain->counters().faults_served_at_once != 0;
  }));
}

TEST(Pager, ShortRangeInAHoleFailsAtOnce) {
  auto domain = make_domain();
  const Mapping memory(4);
  const Target target = add_region(*domain, memory);
  auto session = domain->attach_engine();
  ASSERT_EQ(munmap(memory.data() + kPage, kPage), 0);
  ASSERT_TRUE(eventually([&] {
    EXPECT_FALSE(serve(*session, {target, memory.address() + kPage, 1, {1}})) << "the threads answer it";
    EXPECT_TRUE(ask(*session, {target, memory.address() + kPage, 1, {1}}));
    return wait_for_one(*session).outcome == Outcome::violation;
  }));
  ASSERT_TRUE(ask(*session, {target, memory.address(), 1, {2}}));
  EXPECT_EQ(wait_for_one(*session).outcome, Outcome::done) << "the region goes on";
}

TEST(Pager, LongRangeIsToldAfterItsFirstChunkAndComesWhole) {
  auto domain = make_domain();
  constexpr size_t kPages = 1024;
  constexpr size_t kSlowFrom = 512;
  const Mapping memory(kPages);
  const SlowMemory slow(memory.data() + kSlowFrom * kPage, SlowMemory::kPages);
  SKIP_WITHOUT_SLOW(slow);
  const Target target = add_region(*domain, memory);
  auto session = domain->attach_engine();
  ASSERT_TRUE(ask(*session, {target, memory.address(), memory.size(), {5}}));
  const Resolution resolution = wait_for_one(*session);
  EXPECT_EQ(resolution.waiter.bits, 5U);
  EXPECT_EQ(resolution.outcome, Outcome::done);
  session->enter();
  EXPECT_EQ(session->probe(target, memory.address(), kPage), Outcome::done);
  EXPECT_EQ(session->probe(target, memory.address() + kSlowFrom * kPage, 1), Outcome::miss);
  session->leave();
  ASSERT_TRUE(slow.wait_for_fault()) << "read ahead, though nobody waits for it";
  ASSERT_TRUE(slow.deliver());
  EXPECT_TRUE(eventually([&] {
    session->enter();
    const bool all = session->probe(target, memory.address(), memory.size()) == Outcome::done;
    session->leave();
    return all;
  }));
  RegionCounters counters;
  ASSERT_TRUE(domain->region_counters(target.key, counters));
  EXPECT_EQ(counters.resident_pages, kPages);
  EXPECT_EQ(counters.page_faults, kPages);
  EXPECT_EQ(domain->counters().num_page_faults, 1U);
  Resolution second;
  EXPECT_FALSE(take_one(*session, second)) << "one answer for one request";
}

TEST(Pager, DeregistrationDoesNotWaitForSlowPages) {
  auto domain = make_domain();
  const Mapping memory(SlowMemory::kPages);
  const SlowMemory slow(memory.data(), SlowMemory::kPages);
  SKIP_WITHOUT_SLOW(slow);
  const Target target = add_region(*domain, memory);
  auto session = domain->attach_engine();
  ASSERT_TRUE(ask(*session, {target, memory.address(), memory.size(), {1}}));
  ASSERT_TRUE(slow.wait_for_fault());
  EXPECT_EQ(domain->deregister_region(target.key), 0);
  Resolution early;
  EXPECT_FALSE(take_one(*session, early));
  // Registers the same memory again, before the first service has ended.
  const Target again = add_region(*domain, memory);
  ASSERT_TRUE(slow.deliver());
  EXPECT_EQ(wait_for_one(*session).outcome, Outcome::violation);
  std::array<uint8_t, 3 * kPage> bytes{};
  EXPECT_EQ(read_all(*session, {again.key, 1, kRemoteRead}, memory.address() + 10, bytes), Outcome::done);
  EXPECT_EQ(bytes[bytes.size() - 1], SlowMemory::kFill);
  EXPECT_EQ(domain->deregister_region(again.key), 0);
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 0U);
  EXPECT_EQ(domain->counters().pinned_bytes, 0U);
}

TEST(Pager, SessionThatEndsDoesNotWaitForSlowPages) {
  auto domain = make_domain();
  const Mapping memory(SlowMemory::kPages);
  const SlowMemory slow(memory.data(), SlowMemory::kPages);
  SKIP_WITHOUT_SLOW(slow);
  const Target target = add_region(*domain, memory);
  auto session = domain->attach_engine();
  ASSERT_TRUE(ask(*session, {target, memory.address(), memory.size(), {77}}));
  ASSERT_TRUE(slow.wait_for_fault());
  session.reset();
  auto next = domain->attach_engine();
  ASSERT_TRUE(slow.deliver());
  std::array<uint8_t, 8> bytes{};
  EXPECT_EQ(write_all(*next, target, memory.address(), bytes), Outcome::done);
  Resolution stale;
  EXPECT_FALSE(take_one(*next, stale)) << "an answer to the session before";
}

TEST(Pager, WhatCannotBeHadIsAViolationAndTheRegionGoesOn) {
  auto domain = make_domain();
  constexpr uint64_t kPages = 128;
  const Mapping memory(kPages);
  ASSERT_EQ(munmap(memory.data() + 10 * kPage, kPage), 0);
  ASSERT_EQ(munmap(memory.data() + 100 * kPage, kPage), 0);
  ASSERT_EQ(mprotect(memory.data() + 20 * kPage, kPage, PROT_NONE), 0);
  const Target write = add_region(*domain, memory);
  const Target read{write.key, 1, kRemoteRead};
  auto session = domain->attach_engine();
  std::vector<uint8_t> bytes(kPages * kPage, 1);
  const auto write_at = [&](uint64_t page, uint64_t pages) {
    return write_all(*session, write, memory.address() + page * kPage, {bytes.data(), pages * kPage});
  };
  const auto read_at = [&](uint64_t page) {
    return read_all(*session, read, memory.address() + page * kPage, {bytes.data(), 8});
  };
  for (const uint64_t page : {10U, 20U}) {
    EXPECT_EQ(write_at(page, 1), Outcome::violation) << page;
    EXPECT_EQ(read_at(page), Outcome::violation) << page;
    EXPECT_EQ(write_at(page - 1, 3), Outcome::violation) << page;
    EXPECT_EQ(write_at(page - 1, 1), Outcome::done) << page;
    EXPECT_EQ(write_at(page + 1, 1), Outcome::done) << page;
  }
  EXPECT_EQ(domain->counters().num_failed_resolutions, 6U);
  // Far beyond the range that the pager makes resident at a time; the beginning is resident.
  EXPECT_EQ(write_at(30, 98), Outcome::violation);
  EXPECT_EQ(write_at(30, 70), Outcome::done);
  EXPECT_EQ(write_at(30, 98), Outcome::violation);
  // Restored memory works: a hole at the time of the registration that is now filled, and a permission that
  // is granted again.
  ASSERT_NE(mmap(memory.data() + 10 * kPage, kPage, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  ASSERT_EQ(mprotect(memory.data() + 20 * kPage, kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(write_at(9, 14), Outcome::done);
  EXPECT_EQ(memory.data()[10 * kPage], 1);
  EXPECT_EQ(domain->deregister_region(write.key), 0);
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 0U);
  EXPECT_EQ(domain->counters().pinned_bytes, 0U);
}

TEST(Pager, BeyondTheEndOfAFileIsAViolationUntilItGrows) {
  for (const int flags : {MAP_SHARED, MAP_PRIVATE}) {
    for (const bool in_memory : {true, false}) {
      auto domain = make_domain();
      const File file(in_memory);
      ASSERT_EQ(ftruncate(file.descriptor(), 2 * kPage), 0);
      auto* const data = static_cast<uint8_t*>(
          mmap(low_address(4 * kPage), 4 * kPage, PROT_READ | PROT_WRITE, flags, file.descriptor(), 0));
      ASSERT_NE(data, MAP_FAILED);
      const auto address = reinterpret_cast<uint64_t>(data);
      const Target write = add_region(*domain, address, 4 * kPage);
      auto session = domain->attach_engine();
      std::array<uint8_t, 100> bytes{};
      bytes.fill(7);
      std::array<uint8_t, 100> back{};
      EXPECT_EQ(write_all(*session, write, address + 2 * kPage, bytes), Outcome::violation);
      EXPECT_EQ(write_all(*session, write, address + 2 * kPage - 50, bytes), Outcome::violation);
      EXPECT_EQ(write_all(*session, write, address + 2 * kPage - 100, bytes), Outcome::done);
      EXPECT_EQ(read_all(*session, {write.key, 1, kRemoteRead}, address + 3 * kPage, back),
                Outcome::violation);
      EXPECT_EQ(domain->counters().num_failed_resolutions, 3U);
      ASSERT_EQ(ftruncate(file.descriptor(), 4 * kPage), 0);
      EXPECT_EQ(write_all(*session, write, address + 2 * kPage - 50, bytes), Outcome::done);
      EXPECT_EQ(read_all(*session, {write.key, 1, kRemoteRead}, address + 3 * kPage, back), Outcome::done);
      // The file is now shorter than its resident pages: the access itself detects it.
      ASSERT_EQ(ftruncate(file.descriptor(), kPage), 0);
      EXPECT_EQ(write_all(*session, write, address + 3 * kPage, bytes), Outcome::violation);
      EXPECT_EQ(write_all(*session, write, address + 50, bytes), Outcome::done);
      EXPECT_EQ(data[50], 7);
      EXPECT_EQ(domain->deregister_region(write.key), 0);
      EXPECT_EQ(munmap(data, 4 * kPage), 0);
    }
  }
}

}  // namespace
}  // namespace faultline::odp::test::pager_test
