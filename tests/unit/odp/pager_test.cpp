// SPDX-License-Identifier: BSD-3-Clause
// How faults are served: many at once, slow ones beside others, in which order, and those that cannot be.
#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "tests/unit/odp/slow_memory.hpp"

namespace faultline::odp::test {
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

/// An answer that is there already.
bool take_one(EngineSession& session, Resolution& resolution) {
  session.enter();
  const bool taken = session.take_resolutions({&resolution, 1}) == 1;
  session.leave();
  return taken;
}

Resolution wait_for_one(EngineSession& session) {
  Resolution resolution{~uint64_t{0}, Outcome::miss};
  EXPECT_TRUE(eventually([&] { return take_one(session, resolution); }));
  return resolution;
}

TEST(Pager, WaitersOnOneColdPageCostOneService) {
  auto domain = make_domain();
  const Mapping memory(1);
  const Target target = add_region(*domain, memory);
  constexpr uint64_t kWaiters = 64;
  constexpr size_t kSessions = 8;
  std::array<std::unique_ptr<EngineSession>, kSessions> sessions;
  for (auto& session : sessions) session = domain->attach_engine();
  for (uint64_t waiter = 0; waiter < kWaiters; ++waiter)
    ASSERT_TRUE(ask(*sessions[waiter % kSessions], {target, memory.address() + waiter * 8, 8, waiter}));
  std::array<bool, kWaiters> answered{};
  for (uint64_t i = 0; i < kWaiters; ++i) {
    const Resolution resolution = wait_for_one(*sessions[i % kSessions]);
    EXPECT_EQ(resolution.outcome, Outcome::done);
    EXPECT_FALSE(answered.at(resolution.waiter));
    answered[resolution.waiter] = true;
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
  ASSERT_TRUE(ask(*first, {target, memory.address(), memory.size(), 0}));
  ASSERT_TRUE(slow.wait_for_fault());
  constexpr uint64_t kWaiters = 63;
  for (uint64_t waiter = 0; waiter < kWaiters; ++waiter)
    ASSERT_TRUE(ask(*others, {target, memory.address(), memory.size(), waiter}));
  // What is asked for last is served last: by now the pager has looked at all that wait.
  const Mapping other(1);
  const Target witness = add_region(*domain, other);
  ASSERT_TRUE(ask(*first, {witness, other.address(), 1, 1}));
  EXPECT_EQ(wait_for_one(*first).waiter, 1U);
  Resolution early;
  EXPECT_FALSE(take_one(*others, early));
  ASSERT_TRUE(slow.deliver());
  EXPECT_EQ(wait_for_one(*first).outcome, Outcome::done);
  for (uint64_t i = 0; i < kWaiters; ++i) EXPECT_EQ(wait_for_one(*others).outcome, Outcome::done);
  EXPECT_EQ(domain->counters().num_page_faults, 2U) << "the slow one and the witness";
  EXPECT_EQ(domain->counters().faults_coalesced, kWaiters);
  EXPECT_EQ(memory.data()[memory.size() - 1], SlowMemory::kFill);
}

/// With some memory in service that does not come, a thousand other pages do.
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
    ASSERT_TRUE(ask(*session, {target, address, SlowMemory::kPages * kPage, 100 + i}));
    ASSERT_TRUE(slow[i]->wait_for_fault());
  }
  serve_others(*session, other_target, others);
  EXPECT_EQ(domain->counters().num_page_faults, 1000U);
  EXPECT_TRUE(session->has_outstanding_faults());
  // They come in another order than they were asked for.
  for (uint64_t i = kSlow; i-- > 0;) {
    ASSERT_TRUE(slow[i]->deliver());
    const Resolution resolution = wait_for_one(*session);
    EXPECT_EQ(resolution.waiter, 100 + i);
    EXPECT_EQ(resolution.outcome, Outcome::done);
  }
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
  ASSERT_TRUE(ask(*session, {target, memory.address(), 1, 100}));
  ASSERT_TRUE(slow.wait_for_fault());
  auto other_session = domain->attach_engine();
  ASSERT_TRUE(ask(*other_session, {other_target, others.address(), 1, 1}));
  EXPECT_EQ(wait_for_one(*other_session).waiter, 1U);
  ASSERT_TRUE(slow.deliver());
  EXPECT_EQ(wait_for_one(*session).waiter, 100U);
}

TEST(Pager, UrgentFaultsGoFirst) {
  auto domain = make_domain({.pager_threads = 1});
  const Mapping memory(SlowMemory::kPages);
  const SlowMemory slow(memory.data(), SlowMemory::kPages);
  SKIP_WITHOUT_SLOW(slow);
  const Target target = add_region(*domain, memory);
  constexpr uint64_t kEach = 60;
  const Mapping others(2 * kEach);
  const Target other_target = add_region(*domain, others);
  auto session = domain->attach_engine();
  constexpr uint64_t kHolder = 1000;
  // Its only thread stands still.
  ASSERT_TRUE(ask(*session, {target, memory.address(), memory.size(), kHolder}));
  ASSERT_TRUE(slow.wait_for_fault());
  for (uint64_t i = 0; i < 2 * kEach; ++i) {
    const bool urgent = i % 2 == 1;
    ASSERT_TRUE(ask(*session, {other_target, others.address() + i * kPage, 1, i, urgent}));
  }
  ASSERT_TRUE(slow.deliver());
  EXPECT_EQ(wait_for_one(*session).waiter, kHolder);
  for (uint64_t i = 0; i < 2 * kEach; ++i) {
    const Resolution resolution = wait_for_one(*session);
    EXPECT_EQ(resolution.waiter % 2, i < kEach ? 1U : 0U) << "answer " << i;
    EXPECT_EQ(resolution.outcome, Outcome::done);
  }
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
  ASSERT_TRUE(ask(*session, {target, memory.address(), memory.size(), 5}));
  const Resolution resolution = wait_for_one(*session);
  EXPECT_EQ(resolution.waiter, 5U);
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
  ASSERT_TRUE(ask(*session, {target, memory.address(), memory.size(), 1}));
  ASSERT_TRUE(slow.wait_for_fault());
  EXPECT_EQ(domain->deregister_region(target.key), 0);
  Resolution early;
  EXPECT_FALSE(take_one(*session, early));
  // The same memory again, before the first service is back.
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
  ASSERT_TRUE(ask(*session, {target, memory.address(), memory.size(), 77}));
  ASSERT_TRUE(slow.wait_for_fault());
  session.reset();
  auto next = domain->attach_engine();
  ASSERT_TRUE(slow.deliver());
  std::array<uint8_t, 8> bytes{};
  EXPECT_EQ(write_all(*next, target, memory.address(), bytes), Outcome::done);
  Resolution stale;
  EXPECT_FALSE(take_one(*next, stale)) << "an answer to the session before";
}

}  // namespace
}  // namespace faultline::odp::test
