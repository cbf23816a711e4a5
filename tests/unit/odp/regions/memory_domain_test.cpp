// SPDX-License-Identifier: BSD-3-Clause
#include "odp/regions/memory_domain.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <isa-l/crc.h>

#include "odp/copy/tolerant_copy_crc.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test::memory_domain_test {
namespace {

constexpr uint32_t kAllAccess = kLocalWrite | kRemoteWrite | kRemoteRead;

TEST(MemoryDomain, OnDemandRegionMissesThenServes) {
  auto domain = make_domain();
  const Mapping memory(16);
  const auto result = domain->register_region({.domain = 1,
                                               .address = memory.address(),
                                               .length_bytes = memory.size(),
                                               .iova = 0x1000,
                                               .access = kAllAccess | kOnDemand});
  ASSERT_EQ(result.error, 0);
  auto session = domain->attach_engine();
  const Target target{result.key, 1, kRemoteWrite};
  const std::vector<uint8_t> bytes(6000, 0xab);
  session->enter();
  EXPECT_EQ(session->check(target, 0x1000 + 100, bytes.size()), Outcome::done);
  EXPECT_EQ(session->probe(target, 0x1000 + 100, bytes.size()), Outcome::miss);
  EXPECT_EQ(session->write(target, 0x1000 + 100, bytes), Outcome::miss);
  session->leave();
  EXPECT_EQ(write_all(*session, target, 0x1000 + 100, bytes), Outcome::done);
  EXPECT_EQ(std::memcmp(memory.data() + 100, bytes.data(), bytes.size()), 0);
  EXPECT_EQ(memory.data()[99], 0);
  EXPECT_EQ(memory.data()[6100], 0);
  const Counters counters = domain->counters();
  EXPECT_EQ(counters.num_page_faults, 1U);
  EXPECT_EQ(counters.num_page_fault_pages, 2U);
  EXPECT_EQ(counters.num_odp_mr_pages, 2U);
  EXPECT_EQ(counters.num_odp_mrs, 1U);
  EXPECT_EQ(counters.pinned_bytes + counters.unpinned_bytes, 8192U);
  EXPECT_EQ(domain->deregister_region(result.key), 0);
  EXPECT_EQ(domain->deregister_region(result.key), ENOENT);
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 0U);
  EXPECT_EQ(domain->counters().num_odp_mrs, 0U);
  EXPECT_EQ(domain->counters().pinned_bytes, 0U);
}

/// A process may have some 65,000 mappings, and a device's limit allows more regions than that.
TEST(MemoryDomain, ManyRegionsAreFewMappings) {
  constexpr size_t kRegions = 4000;
  auto domain = make_domain();
  const Mapping memory(16);
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  };
  std::vector<Key> keys;
  const auto before = mappings();
  for (size_t i = 0; i < kRegions; ++i) {
    const auto result = domain->register_region({.domain = 1,
                                                 .address = memory.address(),
                                                 .length_bytes = 64,
                                                 .iova = 0,
                                                 .access = kAllAccess | kOnDemand});
    ASSERT_EQ(result.error, 0);
    keys.push_back(result.key);
  }
  // Gaps between regions would need many mappings.
  for (size_t i = 0; i < kRegions; i += 2) EXPECT_EQ(domain->deregister_region(keys[i]), 0);
  EXPECT_LT(mappings(), before + static_cast<ptrdiff_t>(kRegions / 10));
  for (size_t i = 1; i < kRegions; i += 2) EXPECT_EQ(domain->deregister_region(keys[i]), 0);
}

TEST(MemoryDomain, ClassicRegionIsThereAtOnce) {
  auto domain = make_domain();
  const Mapping memory(16);
  const auto result = domain->register_region({.domain = 1,
                                               .address = memory.address() + 5,
                                               .length_bytes = memory.size() - 5,
                                               .iova = memory.address() + 5,
                                               .access = kAllAccess});
  ASSERT_EQ(result.error, 0);
  EXPECT_EQ(domain->counters().pinned_bytes, memory.size());
  auto session = domain->attach_engine();
  session->enter();
  const Target target{result.key, 1, kRemoteWrite};
  const std::vector<uint8_t> bytes(4096, 0x5a);
  EXPECT_EQ(session->write(target, memory.address() + 5, bytes), Outcome::done);
  EXPECT_EQ(memory.data()[5], 0x5a);
  session->leave();
}

RegionResult register_with(MemoryDomain& domain, uint64_t address, uint64_t length, uint64_t iova,
                           uint32_t access, ProtectionDomain protection = 1) {
  return domain.register_region(
      {.domain = protection, .address = address, .length_bytes = length, .iova = iova, .access = access});
}

TEST(MemoryDomain, RefusesBadRegistrations) {
  auto domain = make_domain();
  const Mapping memory(4);
  const uint64_t at = memory.address();
  constexpr uint64_t kMax = ~uint64_t{0};
  EXPECT_EQ(register_with(*domain, at, 0, at, kOnDemand).error, EINVAL);
  EXPECT_EQ(register_with(*domain, at, 0, at, 0).error, EINVAL);
  EXPECT_EQ(register_with(*domain, at, 4096, at, kOnDemand, 0).error, EINVAL);
  EXPECT_EQ(register_with(*domain, at, kMax, at, kOnDemand).error, EINVAL);
  EXPECT_EQ(register_with(*domain, kMax - 10, 11, 0, kOnDemand).error, EINVAL);
  EXPECT_EQ(register_with(*domain, at, 4096, kMax - 4094, kOnDemand).error, EINVAL);
  EXPECT_EQ(register_with(*domain, at, 4096, at, kRemoteWrite).error, EINVAL);
  EXPECT_EQ(register_with(*domain, at, 4096, at, kRemoteAtomic | kOnDemand).error, EINVAL);
  EXPECT_EQ(register_with(*domain, at, 4096, at, 1U << 30).error, EINVAL);
  munmap(memory.data() + 4096, 4096);
  EXPECT_EQ(register_with(*domain, at, memory.size(), at, 0).error, EFAULT)
      << "a hole under a classic region";
  EXPECT_EQ(domain->counters().pinned_bytes, 0U);
  // Fills the hole again, so that no later mapping is placed there.
  ASSERT_NE(mmap(memory.data() + 4096, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  // The largest iova that does not wrap.
  const auto edge = register_with(*domain, at, 4096, kMax - 4095, kLocalWrite);
  ASSERT_EQ(edge.error, 0);
  auto session = domain->attach_engine();
  session->enter();
  EXPECT_EQ(session->check({edge.key, 1, 0}, kMax - 4095, 4096), Outcome::done);
  EXPECT_EQ(session->check({edge.key, 1, 0}, kMax, 2), Outcome::violation);
  EXPECT_EQ(session->check({edge.key, 1, 0}, 0, 1), Outcome::violation);
  session->leave();
}

TEST(MemoryDomain, KeyMisuseIsAViolation) {
  auto domain = make_domain();
  const Mapping memory(4);
  for (const uint32_t on_demand : {0U, static_cast<uint32_t>(kOnDemand)}) {
    const uint64_t iova = 0x7000;
    const auto result =
        register_with(*domain, memory.address() + 10, 8000, iova, kLocalWrite | kRemoteRead | on_demand);
    ASSERT_EQ(result.error, 0);
    auto session = domain->attach_engine();
    std::vector<uint8_t> bytes(64);
    session->enter();
    const auto expect_violation = [&](const Target& target, uint64_t va, size_t length) {
      EXPECT_EQ(session->check(target, va, length), Outcome::violation);
      EXPECT_EQ(session->probe(target, va, length), Outcome::violation);
      bytes.resize(length);
      EXPECT_EQ(session->read(target, va, bytes), Outcome::violation);
      EXPECT_EQ(session->write(target, va, bytes), Outcome::violation);
    };
    const Target good{result.key, 1, kRemoteRead};
    EXPECT_EQ(session->check(good, iova, 8000), Outcome::done);
    expect_violation({result.key ^ 1, 1, kRemoteRead}, iova, 64);
    expect_violation({result.key ^ 0x100, 1, kRemoteRead}, iova, 64);
    expect_violation({0, 1, kRemoteRead}, iova, 64);
    expect_violation({result.key, 2, kRemoteRead}, iova, 64);
    expect_violation({result.key, 0, kRemoteRead}, iova, 64);
    expect_violation({result.key, 1, kRemoteWrite}, iova, 64);
    expect_violation({result.key, 1, kRemoteAtomic}, iova, 8);
    expect_violation(good, iova - 1, 64);
    expect_violation(good, iova + 7999, 2);
    expect_violation(good, iova + 8000, 1);
    expect_violation(good, memory.address() + 10, 1);
    EXPECT_EQ(session->check(good, iova, ~uint64_t{0}), Outcome::violation);
    EXPECT_EQ(session->check(good, iova + 1, ~uint64_t{0}), Outcome::violation);
    EXPECT_EQ(session->check({0xdeadbeef, 9, kRemoteWrite}, 5, 0), Outcome::done)
        << "zero length carries no key";
    EXPECT_EQ(session->write({0xdeadbeef, 9, kRemoteWrite}, 5, {}), Outcome::done);
    session->leave();
    EXPECT_EQ(domain->deregister_region(result.key), 0);
    session->enter();
    expect_violation(good, iova, 64);
    session->leave();
    EXPECT_EQ(write_all(*session, good, iova, bytes), Outcome::violation);
  }
}

TEST(MemoryDomain, PermissionIsPerPage) {
  auto domain = make_domain({.pin_budget_bytes = 0});
  const Mapping memory(8);
  const auto result = register_with(*domain, memory.address(), memory.size(), 0, kAllAccess | kOnDemand);
  auto session = domain->attach_engine();
  std::array<uint8_t, 100> bytes{};
  ASSERT_EQ(read_all(*session, {result.key, 1, kRemoteRead}, 4090, bytes), Outcome::done);
  session->enter();
  EXPECT_EQ(session->probe({result.key, 1, kRemoteRead}, 0, 8192), Outcome::done);
  EXPECT_EQ(session->probe({result.key, 1, kRemoteRead}, 0, 8193), Outcome::miss);
  EXPECT_EQ(session->probe({result.key, 1, kRemoteWrite}, 0, 1), Outcome::miss)
      << "the zero page is not writable";
  EXPECT_EQ(session->write({result.key, 1, kRemoteWrite}, 0, bytes), Outcome::miss);
  session->leave();
  bytes.fill(9);
  EXPECT_EQ(write_all(*session, {result.key, 1, kRemoteWrite}, 0, bytes), Outcome::done);
  session->enter();
  EXPECT_EQ(session->probe({result.key, 1, kRemoteWrite}, 0, 4096), Outcome::done);
  EXPECT_EQ(session->probe({result.key, 1, kRemoteWrite}, 4096, 1), Outcome::miss);
  session->leave();
}

TEST(MemoryDomain, ACrcTakenInTheCopyFaultsAsTheCopyDoes) {
  auto domain = make_domain();
  const Mapping memory(8);
  for (size_t i = 0; i < memory.size(); ++i) memory.data()[i] = static_cast<uint8_t>(i * 37);
  const uint64_t at = 0x1000 + 100;
  std::vector<uint8_t> bytes(8192);
  uint32_t crc = 0;
  for (const uint32_t on_demand : {uint32_t{kOnDemand}, uint32_t{0}}) {
    const auto result =
        register_with(*domain, memory.address(), memory.size(), 0x1000, kAllAccess | on_demand);
    ASSERT_EQ(result.error, 0);
    const Target target{result.key, 1, kRemoteRead};
    auto session = domain->attach_engine();
    ASSERT_EQ(read_all(*session, target, at, bytes), Outcome::done);
    // Inaccessible without an event, in the middle of the range that is read.
    ASSERT_EQ(mprotect(memory.data() + 4096, 4096, PROT_NONE), 0);
    const uint64_t caught = domain->counters().copy_faults_caught;
    session->enter();
    EXPECT_EQ(session->read_with_crc(target, at, bytes, crc),
              on_demand != 0 ? Outcome::miss : Outcome::violation);
    session->leave();
    EXPECT_EQ(domain->counters().copy_faults_caught, caught + 1);
    ASSERT_EQ(mprotect(memory.data() + 4096, 4096, PROT_READ | PROT_WRITE), 0);
    EXPECT_EQ(until_settled(*session, {target, at, bytes.size(), {7}},
                            [&] {
                              crc = 3;
                              return session->read_with_crc(target, at, bytes, crc);
                            }),
              Outcome::done);
    EXPECT_EQ(std::memcmp(bytes.data(), memory.data() + 100, bytes.size()), 0);
    EXPECT_EQ(crc, crc32_gzip_refl(3, bytes.data(), bytes.size()));
    session->enter();
    EXPECT_EQ(session->read_with_crc({result.key, 2, kRemoteRead}, at, bytes, crc), Outcome::violation);
    EXPECT_EQ(session->read_with_crc(target, at, {}, crc), Outcome::done);
    session->leave();
  }
}

TEST(MemoryDomain, AWriteTakesAnOfferedSumAlongOnce) {
  auto domain = make_domain();
  const Mapping memory(8);
  const auto result = register_with(*domain, memory.address(), memory.size(), 0, kAllAccess | kOnDemand);
  const Target target{result.key, 1, kRemoteWrite};
  auto session = domain->attach_engine();
  const std::vector<uint8_t> bytes(4096, 0x3b);
  const std::vector<uint8_t> other(4096, 0x3c);
  const uint32_t right = crc32_gzip_refl(5, other.data(), other.size());
  CrcBeside sum{other, 5, false};
  session->enter();
  session->offer_beside_write(&sum);
  EXPECT_EQ(session->write(target, 100, bytes), Outcome::miss);
  EXPECT_FALSE(sum.done);
  session->offer_beside_write(nullptr);
  session->leave();
  ASSERT_EQ(write_all(*session, target, 100, bytes), Outcome::done);
  session->enter();
  session->offer_beside_write(&sum);
  EXPECT_EQ(session->write(target, 200, bytes), Outcome::done);
  EXPECT_EQ(sum.done, copy_crc_routine() == CopyCrcRoutine::avx512);
  EXPECT_EQ(sum.crc, sum.done ? right : 5U);
  EXPECT_EQ(session->write(target, 300, bytes), Outcome::done);
  EXPECT_EQ(sum.crc, sum.done ? right : 5U);
  session->offer_beside_write(nullptr);
  session->leave();
  EXPECT_EQ(std::count(memory.data() + 100, memory.data() + 300 + bytes.size(), 0x3b), 200 + 4096);
}

TEST(MemoryDomain, FaultsThatCannotBeResolvedAreViolations) {
  auto domain = make_domain();
  const Mapping read_only(4, PROT_READ);
  const auto result =
      register_with(*domain, read_only.address(), read_only.size(), 0, kAllAccess | kOnDemand);
  ASSERT_EQ(result.error, 0);
  auto session = domain->attach_engine();
  std::array<uint8_t, 8> bytes{};
  EXPECT_EQ(write_all(*session, {result.key, 1, kRemoteWrite}, 0, bytes), Outcome::violation);
  EXPECT_EQ(read_all(*session, {result.key, 1, kRemoteRead}, 0, bytes), Outcome::done);
  EXPECT_EQ(domain->counters().num_failed_resolutions, 1U);
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 1U);
}

TEST(MemoryDomain, ManyWaitersOnOneRangeCostOneService) {
  auto domain = make_domain();
  const Mapping memory(256);
  const auto result = register_with(*domain, memory.address(), memory.size(), 0, kAllAccess | kOnDemand);
  auto session = domain->attach_engine();
  constexpr size_t kWaiters = 500;
  session->enter();
  for (uint64_t i = 0; i < kWaiters; ++i)
    ASSERT_TRUE(session->request_fault({{result.key, 1, kRemoteWrite}, 0, memory.size(), {i}}));
  EXPECT_TRUE(session->has_outstanding_faults());
  session->leave();
  std::vector<bool> seen(kWaiters, false);
  for (size_t i = 0; i < kWaiters; ++i) {
    const Resolution resolution = next_resolution(*session);
    EXPECT_EQ(resolution.outcome, Outcome::done);
    EXPECT_FALSE(seen.at(resolution.waiter.bits));
    seen[resolution.waiter.bits] = true;
  }
  session->leave();
  EXPECT_FALSE(session->has_outstanding_faults());
  const Counters counters = domain->counters();
  EXPECT_EQ(counters.num_page_fault_pages, 256U);
  EXPECT_EQ(counters.num_odp_mr_pages, 256U);
  EXPECT_EQ(counters.num_page_faults + counters.faults_coalesced, kWaiters);
  // For a range this long, at most one service per chunk can have started.
  EXPECT_LE(counters.num_page_faults, 4U);
}

TEST(MemoryDomain, FaultQueueIsBoundedAndRecovers) {
  auto domain = make_domain();
  const Mapping memory(1);
  const auto result = register_with(*domain, memory.address(), memory.size(), 0, kAllAccess | kOnDemand);
  auto session = domain->attach_engine();
  size_t queued = 0;
  while (session->request_fault({{result.key, 1, kRemoteWrite}, 0, 1, {queued}})) ++queued;
  EXPECT_GE(queued, 64U);
  for (size_t i = 0; i < queued; ++i) EXPECT_EQ(next_resolution(*session).outcome, Outcome::done);
  EXPECT_TRUE(session->request_fault({{result.key, 1, kRemoteWrite}, 0, 1, {1}}));
  EXPECT_EQ(next_resolution(*session).waiter.bits, 1U);
  session->leave();
}

TEST(MemoryDomain, HugeOnDemandRegionTouchesNothing) {
  auto domain = make_domain();
  constexpr size_t kBytes = size_t{64} << 30;
  const Mapping memory(kBytes / 4096);
  ASSERT_NE(memory.data(), MAP_FAILED);
  const auto result =
      register_with(*domain, memory.address(), kBytes, memory.address(), kAllAccess | kOnDemand);
  ASSERT_EQ(result.error, 0);
  unsigned char resident = 1;
  ASSERT_EQ(mincore(memory.data() + kBytes / 2, 4096, &resident), 0);
  EXPECT_EQ(resident & 1, 0);
  auto session = domain->attach_engine();
  const std::vector<uint8_t> bytes(4096, 3);
  EXPECT_EQ(write_all(*session, {result.key, 1, kRemoteWrite}, memory.address() + kBytes - 5000, bytes),
            Outcome::done);
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 2U);
  EXPECT_EQ(domain->deregister_region(result.key), 0);
}

TEST(MemoryDomain, WorkBeyondTheBudgetGoesOn) {
  auto domain = make_domain({.pin_budget_bytes = 8 * 4096});
  const Mapping memory(512);
  const auto result = register_with(*domain, memory.address(), memory.size(), 0, kAllAccess | kOnDemand);
  auto session = domain->attach_engine();
  const Target target{result.key, 1, kRemoteWrite};
  const std::vector<uint8_t> whole(memory.size(), 0x42);
  EXPECT_EQ(write_all(*session, target, 0, whole), Outcome::done) << "one message larger than the budget";
  EXPECT_EQ(memory.data()[memory.size() - 1], 0x42);
  EXPECT_LE(domain->counters().pinned_bytes, 8U * 4096);
  EXPECT_GE(domain->counters().pin_fallbacks, 1U);
  // Pages pinned long enough ago are evicted.
  const Mapping other(64);
  const auto second = register_with(*domain, other.address(), other.size(), 0, kAllAccess | kOnDemand);
  const std::vector<uint8_t> page(4096, 0x43);
  for (size_t i = 0; i < 64 && domain->counters().pin_evictions == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    ASSERT_EQ(write_all(*session, {second.key, 1, kRemoteWrite}, i * 4096, page), Outcome::done);
  }
  EXPECT_GE(domain->counters().pin_evictions, 1U);
  EXPECT_LE(domain->counters().pinned_bytes, 8U * 4096);
}

TEST(MemoryDomain, PrefetchAnswersAsAdviseMrDocuments) {
  auto domain = make_domain();
  const Mapping memory(16);
  const auto result = register_with(*domain, memory.address(), memory.size(), 0, kRemoteRead | kOnDemand);
  const auto classic = register_with(*domain, memory.address(), memory.size(), 0, kLocalWrite);
  const Target target{result.key, 1, kLocalRead};
  EXPECT_EQ(advise(*domain, target, 0, memory.size(), true), 0);
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 16U);
  EXPECT_EQ(domain->counters().num_prefetches_handled, 1U);
  EXPECT_EQ(domain->counters().num_prefetch_pages, 16U);
  EXPECT_EQ(domain->counters().num_page_faults, 0U);
  EXPECT_EQ(advise(*domain, {result.key ^ 1, 1, kLocalRead}, 0, 1, true), EFAULT);
  EXPECT_EQ(advise(*domain, target, 1, memory.size(), true), EFAULT);
  EXPECT_EQ(advise(*domain, {result.key, 2, kLocalRead}, 0, 1, true), EPERM);
  EXPECT_EQ(advise(*domain, {result.key, 0, kLocalRead}, 0, 1, true), EINVAL);
  EXPECT_EQ(advise(*domain, {result.key, 1, kLocalWrite}, 0, 1, true), EPERM);
  EXPECT_EQ(advise(*domain, {classic.key, 1, kLocalRead}, 0, 1, true), EINVAL);
  EXPECT_EQ(advise(*domain, target, 0, 0, true), 0);
  munmap(memory.data(), 4096);
  EXPECT_EQ(advise(*domain, target, 0, 1, true), EFAULT);
}

TEST(MemoryDomain, HintMakesAPostedReceiveHit) {
  auto domain = make_domain();
  const Mapping memory(16);
  const auto result = register_with(*domain, memory.address(), memory.size(), 0, kLocalWrite | kOnDemand);
  auto session = domain->attach_engine();
  const Target target{result.key, 1, kLocalWrite};
  const std::array hints{WriteHint{100, result.key ^ 1, 10'000}, WriteHint{100, result.key, 10'000},
                         WriteHint{0, result.key, ~uint32_t{0}}, WriteHint{0, result.key, 0},
                         WriteHint{9 * 4096, result.key, 4096}};
  SettledRange settled;
  domain->hint_will_write(1, hints, settled);
  domain->hint_will_write(2, hints, settled);
  domain->hint_will_write(1, {}, settled);
  for (const uint64_t va : {uint64_t{100}, uint64_t{9 * 4096}}) {
    for (;;) {
      session->enter();
      const bool there = session->probe(target, va, va == 100 ? 10'000 : 4096) == Outcome::done;
      session->leave();
      if (there) break;
      std::this_thread::yield();
    }
  }
  domain->hint_will_write(1, hints, settled);
  EXPECT_EQ(advise(*domain, target, 0, 1, true), 0);
  // The hints of the second call found resident pages and were never queued.
  EXPECT_EQ(domain->counters().num_prefetches_handled, 3U);
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 4U);
}

TEST(MemoryDomain, DeregistrationUnderUseEndsInViolations) {
  auto domain = make_domain();
  const Mapping memory(64);
  std::atomic<Key> key{
      register_with(*domain, memory.address(), memory.size(), 0, kAllAccess | kOnDemand).key};
  std::atomic<bool> stop{false};
  std::thread engine([&] {
    auto session = domain->attach_engine();
    const std::vector<uint8_t> bytes(4096, 1);
    std::array<Resolution, 16> resolutions;
    for (uint64_t i = 0; !stop; ++i) {
      session->enter();
      (void)session->take_resolutions(resolutions);
      const Target target{key, 1, kRemoteWrite};
      const uint64_t va = (i * 4001) % (memory.size() - 4096);
      if (const FaultRequest fault{target, va, 4096, {i}};
          session->write(target, va, bytes) == Outcome::miss && !session->serve_fault(fault))
        (void)session->request_fault(fault);
      if (session->should_yield()) std::this_thread::yield();
    }
    session->leave();
  });
  std::thread hints([&] {
    SettledRange settled;
    while (!stop) {
      const WriteHint all{0, key, static_cast<uint32_t>(memory.size())};
      domain->hint_will_write(1, {&all, 1}, settled);
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 150; ++i) {
    ASSERT_EQ(domain->deregister_region(key), 0);
    const auto again = register_with(*domain, memory.address(), memory.size(), 0, kAllAccess | kOnDemand);
    ASSERT_EQ(again.error, 0);
    key = again.key;
  }
  stop = true;
  engine.join();
  hints.join();
  EXPECT_EQ(domain->deregister_region(key), 0);
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 0U);
  EXPECT_EQ(domain->counters().pinned_bytes, 0U);
}

TEST(MemoryDomain, AReplacedRegionKeepsItsKeyAlone) {
  auto domain = make_domain();
  const Mapping first(4);
  const Mapping second(4);
  RegionRequest request{.domain = 1,
                        .address = first.address(),
                        .length_bytes = first.size(),
                        .iova = 0x1000,
                        .access = kAllAccess | kOnDemand | kMemoryWindowBind};
  const auto result = domain->register_region(request);
  ASSERT_EQ(result.error, 0);
  auto session = domain->attach_engine();
  const std::vector<uint8_t> bytes(100, 0xab);
  const Target target{result.key, 1, kRemoteWrite};
  ASSERT_EQ(write_all(*session, target, 0x1000, bytes), Outcome::done);
  session->leave();

  request.address = second.address();
  request.iova = 0x9000;
  request.access |= kRemoteWrite;
  RegionRequest bad = request;
  bad.length_bytes = 0;
  EXPECT_EQ(domain->replace_region(result.key, bad), EINVAL);
  EXPECT_EQ(domain->replace_region(result.key ^ 1, request), ENOENT);
  EXPECT_EQ(domain->counters().num_odp_mrs, 1U);
  ASSERT_EQ(write_all(*session, target, 0x1000, bytes), Outcome::done) << "as it was";
  session->leave();

  ASSERT_EQ(domain->replace_region(result.key, request), 0);
  EXPECT_EQ(domain->counters().num_odp_mrs, 1U);
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 0U);
  EXPECT_EQ(domain->counters().pinned_bytes, 0U);
  session->enter();
  EXPECT_EQ(session->check(target, 0x1000, bytes.size()), Outcome::violation);
  session->leave();
  ASSERT_EQ(write_all(*session, target, 0x9000, bytes), Outcome::done);
  EXPECT_EQ(second.data()[99], 0xab);
  session->leave();

  // A bound window keeps the old region registered.
  const auto window = domain->allocate_window(1, WindowType::type1);
  ASSERT_EQ(window.error, 0);
  session->enter();
  ASSERT_EQ(session->bind_window({.window = window.key,
                                  .new_key = window.key,
                                  .type = WindowType::type1,
                                  .domain = 1,
                                  .region = result.key,
                                  .va = 0x9000,
                                  .length_bytes = 64,
                                  .access = kRemoteWrite}),
            Outcome::done);
  session->leave();
  EXPECT_EQ(domain->replace_region(result.key, request), EBUSY);
  EXPECT_EQ(domain->deallocate_window(window.key), 0);
  EXPECT_EQ(domain->replace_region(result.key, request), 0);
  EXPECT_EQ(domain->deregister_region(result.key), 0);
  EXPECT_EQ(domain->counters().num_odp_mrs, 0U);
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 0U);
  EXPECT_EQ(domain->counters().pinned_bytes, 0U);
}

TEST(MemoryDomain, ThousandsOfRegionsOverOnePage) {
  auto domain = make_domain();
  const Mapping memory(2);
  std::vector<Key> keys;
  for (size_t i = 0; i < 3000; ++i) {
    const auto result = register_with(*domain, memory.address() + i, 1 + i, i * 100, kAllAccess | kOnDemand);
    ASSERT_EQ(result.error, 0);
    keys.push_back(result.key);
  }
  auto session = domain->attach_engine();
  const std::array<uint8_t, 1> byte{0x21};
  EXPECT_EQ(write_all(*session, {keys[2999], 1, kRemoteWrite}, 2999 * 100, byte), Outcome::done);
  EXPECT_EQ(memory.data()[2999], 0x21);
  for (const Key key : keys) ASSERT_EQ(domain->deregister_region(key), 0);
  EXPECT_EQ(domain->counters().num_odp_mrs, 0U);
}

TEST(MemoryDomain, SessionsComeAndGoWithFaultsUnanswered) {
  auto domain = make_domain();
  const Mapping memory(4096);
  const auto result = register_with(*domain, memory.address(), memory.size(), 0, kAllAccess | kOnDemand);
  for (int i = 0; i < 100; ++i) {
    auto session = domain->attach_engine();
    ASSERT_NE(session, nullptr);
    session->enter();
    for (uint64_t j = 0; j < 50; ++j)
      ASSERT_TRUE(session->request_fault({{result.key, 1, kRemoteWrite}, 0, memory.size(), {j}}));
  }
  auto session = domain->attach_engine();
  std::array<Resolution, 4> stale;
  EXPECT_EQ(session->take_resolutions(stale), 0U) << "answers of an engine that is gone";
}

}  // namespace
}  // namespace faultline::odp::test::memory_domain_test
