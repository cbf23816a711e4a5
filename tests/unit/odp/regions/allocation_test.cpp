// SPDX-License-Identifier: BSD-3-Clause
// Each step of creating an object that takes memory fails once: operator new, a mapping, pages that the
// kernel lacks (CVE-2026-45852, CVE-2025-38024, CVE-2022-50671, -50885, -50543: double frees and null
// pointers on such paths). The call reports the failure, and nothing remains.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "tests/unit/odp/engine_loop.hpp"

namespace {

thread_local int steps_until_failure = 0;  ///< 0: none fails
std::atomic<int64_t> outstanding{0};       ///< allocations and mappings

bool fails() {
  return steps_until_failure != 0 && --steps_until_failure == 0;
}

void* allocate(size_t bytes, size_t alignment) {
  if (fails()) return nullptr;
  const size_t rounded = (bytes + alignment) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded);
  if (memory != nullptr) ++outstanding;
  return memory;
}

void* allocate_or_throw(size_t bytes, size_t alignment) {
  void* const memory = allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void deallocate(void* memory) {
  if (memory != nullptr) --outstanding;
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) {
  return allocate_or_throw(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t& /*tag*/) noexcept {
  return allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  deallocate(memory);
}
void operator delete(void* memory, size_t /*bytes*/) noexcept {
  deallocate(memory);
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  deallocate(memory);
}
void operator delete(void* memory, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  deallocate(memory);
}

// ld(1), --wrap: redirects the memory layer's calls to these functions.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): the linker's names
void* __real_mmap64(void* address, size_t bytes, int protection, int flags, int file, off_t offset);
int __real_munmap(void* address, size_t bytes);
int __real_madvise(void* address, size_t bytes, int advice);

void* __wrap_mmap64(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (fails()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  void* const memory = __real_mmap64(address, bytes, protection, flags, file, offset);
  if (memory != MAP_FAILED) ++outstanding;
  return memory;
}
void* __wrap_mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  return __wrap_mmap64(address, bytes, protection, flags, file, offset);
}
int __wrap_munmap(void* address, size_t bytes) {
  --outstanding;
  return __real_munmap(address, bytes);
}
int __wrap_madvise(void* address, size_t bytes, int advice) {
  const bool populates = advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE;
  if (populates && fails()) {
    errno = ENOMEM;
    return -1;
  }
  return __real_madvise(address, bytes, advice);
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
}

namespace faultline::odp::test::allocation_test {
namespace {

/// Fails each step of `create` in turn until it succeeds. Returns the number of its steps.
int fail_each_step(const std::function<bool()>& create, const std::function<void()>& destroy) {
  constexpr int kMany = 1000;
  for (int nth = 1; nth < kMany; ++nth) {
    SCOPED_TRACE(nth);
    steps_until_failure = nth;
    const bool created = create();
    const bool failed_one = steps_until_failure == 0;
    steps_until_failure = 0;
    if (created) {
      destroy();
      if (!failed_one) return nth - 1;  // failing an optional step is no error
    } else {
      EXPECT_TRUE(failed_one);
    }
  }
  ADD_FAILURE() << "never created";
  return 0;
}

/// The second pass finds tables that only grow at the size that the first pass left.
void expect_nothing_left(const std::function<bool()>& create, const std::function<void()>& destroy) {
  EXPECT_GT(fail_each_step(create, destroy), 0) << "a create that takes no memory tests nothing";
  const int64_t before = outstanding;
  EXPECT_GT(fail_each_step(create, destroy), 0);
  EXPECT_EQ(outstanding, before);
}

/// Runs one create. Returns true if it succeeded; a failure must report ENOMEM.
bool is_created(const RegionResult& result, Key& key) {
  if (result.error != 0) {
    EXPECT_EQ(result.error, ENOMEM);
    EXPECT_EQ(result.key, 0U);
  }
  key = result.key;
  return result.error == 0;
}

TEST(NoMemory, RegionsOfBothKinds) {
  auto domain = make_domain();
  const Mapping memory(64);
  for (const uint32_t kind : {0U, uint32_t{kOnDemand}}) {
    SCOPED_TRACE(kind);
    Key key = 0;
    expect_nothing_left(
        [&] {
          return is_created(domain->register_region({.domain = 1,
                                                     .address = memory.address() + 100,
                                                     .length_bytes = memory.size() - 200,
                                                     .iova = 0,
                                                     .access = kLocalWrite | kMemoryWindowBind | kind}),
                            key);
        },
        [&] { EXPECT_EQ(domain->deregister_region(key), 0); });
  }
  const Counters counters = domain->counters();
  EXPECT_EQ(counters.num_odp_mrs, 0U);
  EXPECT_EQ(counters.num_odp_mr_pages, 0U);
  EXPECT_EQ(counters.pinned_bytes, 0U);
}

TEST(NoMemory, WindowsOfBothTypes) {
  auto domain = make_domain();
  for (const WindowType type : {WindowType::type1, WindowType::type2}) {
    Key key = 0;
    expect_nothing_left([&] { return is_created(domain->allocate_window(1, type), key); },
                        [&] { EXPECT_EQ(domain->deallocate_window(key), 0); });
  }
}

TEST(NoMemory, Sessions) {
  auto domain = make_domain();
  std::unique_ptr<EngineSession> session;
  expect_nothing_left([&] { return (session = domain->attach_engine()) != nullptr; },
                      [&] { session.reset(); });
  // A failed attach must not occupy a slot.
  std::vector<std::unique_ptr<EngineSession>> all;
  while (auto one = domain->attach_engine()) all.push_back(std::move(one));
  const size_t places = all.size();
  all.clear();
  EXPECT_GT(fail_each_step([&] { return (session = domain->attach_engine()) != nullptr; },
                           [&] { session.reset(); }),
            0);
  while (auto one = domain->attach_engine()) all.push_back(std::move(one));
  EXPECT_EQ(all.size(), places);
}

TEST(NoMemory, Domains) {
  std::unique_ptr<MemoryDomain> domain;
  const auto create = [&] {
    std::string error;
    domain = MemoryDomain::create({}, error);
    EXPECT_EQ(domain == nullptr, !error.empty());
    return domain != nullptr;
  };
  expect_nothing_left(create, [&] { domain.reset(); });
  // The same with another domain that keeps the monitor alive.
  const auto other = make_domain();
  expect_nothing_left(create, [&] { domain.reset(); });
}

TEST(NoMemory, TakingAwayNeedsNone) {
  auto domain = make_domain();
  const Mapping memory(3);
  for (int nth = 1; nth < 8; ++nth) {
    SCOPED_TRACE(nth);
    const RegionRequest whole{.domain = 1,
                              .address = memory.address(),
                              .length_bytes = memory.size(),
                              .iova = 0,
                              .access = kLocalWrite | kMemoryWindowBind};
    RegionRequest middle = whole;
    middle.address += 4096;
    middle.length_bytes = 4096;
    const RegionResult first = domain->register_region(whole);
    const RegionResult second = domain->register_region(middle);
    const RegionResult window = domain->allocate_window(1, WindowType::type1);
    ASSERT_EQ(first.error + second.error + window.error, 0);
    steps_until_failure = nth;
    EXPECT_EQ(domain->deallocate_window(window.key), 0);
    EXPECT_EQ(domain->deregister_region(second.key), 0);
    EXPECT_EQ(domain->deregister_region(first.key), 0);
    steps_until_failure = 0;
  }
}

}  // namespace
}  // namespace faultline::odp::test::allocation_test
