// SPDX-License-Identifier: BSD-3-Clause
// What registered memory is watched for, next to a userfaultfd of the program and for many small regions.
// Built twice: with the library's hooks interposed on the C library's names (ODP_HOOKED), and without.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/unit/odp/invalidation/watch_fixture.hpp"

namespace faultline::odp::test::watch_test {
namespace {

class OwnUserfault : public Watch {};

/// userfaultfd(2), UFFDIO_UNREGISTER: before Linux 6.17 the kernel does not check which userfaultfd made the
/// registration that it removes.
TEST_F(OwnUserfault, SurvivesDeregistration) {
  const ProgramUserfault own;
  if (own.fd() < 0) GTEST_SKIP() << "the kernel refuses userfaultfd here";
  start();
  const Mapping memory(4);
  ASSERT_EQ(own.watch(memory.data(), memory.size(), UFFDIO_REGISTER_MODE_MISSING), 0);
  const Target target = register_memory(memory.data(), memory.size());
  EXPECT_EQ(domain_->deregister_region(target.key), 0);
  // UFFDIO_COPY accepts a page only for a registered range (ENOENT otherwise).
  const std::vector<uint8_t> page(kPage, 0x77);
  EXPECT_EQ(own.provide(memory.data() + kPage, page.data()), 0);
  EXPECT_EQ(memory.data()[kPage], 0x77);
}

/// The region's memory is gone; the program's userfaultfd is registered on the mapping that replaced it.
TEST_F(OwnUserfault, OfALaterMappingSurvivesDeregistration) {
  const ProgramUserfault own;
  if (own.fd() < 0) GTEST_SKIP() << "the kernel refuses userfaultfd here";
  start();
  const Mapping memory(4);
  const Target target = register_memory(memory.data(), memory.size());
  ASSERT_EQ(bare_munmap(memory.data() + kPage, 2 * kPage), 0);
  ASSERT_EQ(bare_mmap(memory.data() + kPage, 2 * kPage), memory.data() + kPage);
  ASSERT_EQ(own.watch(memory.data() + kPage, kPage, UFFDIO_REGISTER_MODE_MISSING), 0);
  EXPECT_EQ(domain_->deregister_region(target.key), 0);
  const std::vector<uint8_t> page(kPage, 0x77);
  EXPECT_EQ(own.provide(memory.data() + kPage, page.data()), 0);
  // Memory that only the library had registered is free again.
  EXPECT_EQ(own.watch(memory.data(), kPage, UFFDIO_REGISTER_MODE_MISSING), 0);
  EXPECT_EQ(own.watch(memory.data() + 2 * kPage, 2 * kPage, UFFDIO_REGISTER_MODE_MISSING), 0);
}

/// The program pages one mapping of several: the others are watched nevertheless.
TEST_F(OwnUserfault, OfAPartLeavesTheRestWatched) {
  const ProgramUserfault own;
  if (own.fd() < 0) GTEST_SKIP() << "the kernel refuses userfaultfd here";
  start();
  const Mapping memory(8);
  ASSERT_EQ(own.watch(memory.data() + 2 * kPage, 2 * kPage, UFFDIO_REGISTER_MODE_MISSING), 0);
  const Target target = register_memory(memory.data(), memory.size());
  EXPECT_GE(domain_->counters().unwatched_regions, 1U);
  ASSERT_EQ(fill(target, memory.data() + 6 * kPage, kPage, 1), Outcome::done);
  EXPECT_TRUE(is_watched(target, memory.data() + 6 * kPage));
  EXPECT_EQ(domain_->deregister_region(target.key), 0);
  const std::vector<uint8_t> page(kPage, 0x77);
  EXPECT_EQ(own.provide(memory.data() + 2 * kPage, page.data()), 0);
}

class ManySmallRegions : public Watch {
 protected:
  static constexpr size_t kRegions = 100'000;
  static constexpr size_t kBytes = 2 * kRegions * kPage;
};

/// Regions on every second page of one mapping. Watched page by page they would be 200,000 mappings. A
/// process may have 65,530 (proc(5), vm.max_map_count); beyond that its malloc fails.
TEST_F(ManySmallRegions, TakeFewMappings) {
  start();
  auto* const memory = static_cast<uint8_t*>(
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  const auto page_of = [memory](size_t region) { return memory + (2 * region + 1) * kPage; };
  const size_t mappings_before = count_mappings();
  std::vector<Target> targets;
  targets.reserve(kRegions);
  for (size_t i = 0; i < kRegions; ++i) targets.push_back(register_memory(page_of(i), kPage));
  EXPECT_LT(count_mappings() - mappings_before, 8'000U);
  void* const chunk = std::malloc(size_t{1} << 20);
  EXPECT_NE(chunk, nullptr);
  std::free(chunk);
  for (size_t i = 0; i < kRegions; i += 1000)
    ASSERT_EQ(fill(targets[i], page_of(i), kPage, 1), Outcome::done);
  EXPECT_EQ(domain_->counters().unwatched_regions, 0U);

  ASSERT_EQ(bare_munmap(memory, kBytes), 0);
  ASSERT_EQ(bare_mmap(memory, kBytes), memory);
  for (size_t i = 0; i < kRegions; i += 100) page_of(i)[5] = 0xaa;
  size_t refused = 0;
  for (size_t i = 0; i < kRegions; ++i)
    refused += fill(targets[i], page_of(i), 16, 0x55) == Outcome::violation;
  EXPECT_EQ(refused, kRegions);
  size_t written = 0;
  for (size_t i = 0; i < kRegions; ++i) {
    const uint8_t expected = i % 100 == 0 ? 0xaa : 0;
    written += page_of(i)[5] != expected;
  }
  EXPECT_EQ(written, 0U);
  for (const Target& target : targets) EXPECT_EQ(domain_->deregister_region(target.key), 0);
  bare_munmap(memory, kBytes);
}

/// The watch is removed from memory without regions, also the watch of a whole mapping. The program's madvise
/// is then cheap again, and its own userfaultfd can register the memory.
TEST_F(ManySmallRegions, LeaveNothingWatched) {
  const ProgramUserfault own;
  if (own.fd() < 0) GTEST_SKIP() << "the kernel refuses userfaultfd here";
  start();
  constexpr size_t kFew = 5'000;
  const Mapping memory(2 * kFew);
  std::vector<Target> targets;
  for (size_t i = 0; i < kFew; ++i) targets.push_back(register_memory(memory.data() + 2 * i * kPage, kPage));
  for (const Target& target : targets) ASSERT_EQ(domain_->deregister_region(target.key), 0);
  // Uses the system call directly, which removes no watch.
  uffdio_register request{{memory.address(), memory.size()}, UFFDIO_REGISTER_MODE_MISSING, 0};
  EXPECT_EQ(syscall(SYS_ioctl, own.fd(), UFFDIO_REGISTER, &request), 0) << std::strerror(errno);
}

}  // namespace
}  // namespace faultline::odp::test::watch_test
