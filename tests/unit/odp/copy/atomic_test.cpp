// SPDX-License-Identifier: BSD-3-Clause
// Atomics and FLUSH on memory with absent pages.
#include <cerrno>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test::atomic_test {
namespace {

constexpr uint32_t kAll = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic;

class Atomic : public testing::TestWithParam<uint32_t> {
 protected:
  Target add(const Mapping& memory, uint32_t access = kAll) {
    const RegionResult result = domain_->register_region({.domain = 1,
                                                          .address = memory.address(),
                                                          .length_bytes = memory.size(),
                                                          .iova = memory.address(),
                                                          .access = access | GetParam()});
    EXPECT_EQ(result.error, 0);
    return {result.key, 1, kRemoteAtomic};
  }
  Outcome run(const Target& target, uint64_t va, const AtomicRequest& request, uint64_t& original) {
    return until_settled(*session_, {target, va, sizeof original, {9}},
                         [&] { return session_->atomic(target, va, request, original); });
  }
  std::unique_ptr<MemoryDomain> domain_ = make_domain();
  std::unique_ptr<EngineSession> session_ = domain_->attach_engine();
};

TEST_P(Atomic, DoesWhatItSays) {
  const Mapping memory(2);
  const Target target = add(memory);
  uint64_t original = 1;
  EXPECT_EQ(run(target, memory.address() + 8, {AtomicOp::fetch_add, 0, 5}, original), Outcome::done);
  EXPECT_EQ(original, 0U);
  EXPECT_EQ(run(target, memory.address() + 8, {AtomicOp::compare_swap, 4, 9}, original), Outcome::done);
  EXPECT_EQ(original, 5U);
  EXPECT_EQ(run(target, memory.address() + 8, {AtomicOp::compare_swap, 5, 9}, original), Outcome::done);
  EXPECT_EQ(original, 5U);
  EXPECT_EQ(run(target, memory.address() + 8, {AtomicOp::store, 0, 77}, original), Outcome::done);
  EXPECT_EQ(original, 9U);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(memory.data() + 8), 77U);
}

TEST_P(Atomic, RightsAndBoundsAreHeldTo) {
  const Mapping memory(1);
  const Target no_right = add(memory, kLocalWrite | kRemoteWrite);
  uint64_t original = 0;
  EXPECT_EQ(run(no_right, memory.address(), {AtomicOp::fetch_add, 0, 1}, original), Outcome::violation);
  const Target target = add(memory);
  EXPECT_EQ(run(target, memory.address() + 4096 - 4, {AtomicOp::fetch_add, 0, 1}, original),
            Outcome::violation);
  EXPECT_EQ(run({target.key, 2, kRemoteAtomic}, memory.address(), {AtomicOp::fetch_add, 0, 1}, original),
            Outcome::violation);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(memory.data()), 0U);
}

TEST_P(Atomic, IsIndivisibleForTheProgramsThreads) {
  constexpr uint64_t kTimes = 100'000;
  const Mapping memory(1);
  const Target target = add(memory);
  uint64_t original = 0;
  ASSERT_EQ(run(target, memory.address(), {AtomicOp::fetch_add, 0, 0}, original), Outcome::done);
  std::thread program([&] {
    for (uint64_t i = 0; i < kTimes; ++i)
      __atomic_fetch_add(reinterpret_cast<uint64_t*>(memory.data()), 1, __ATOMIC_SEQ_CST);
  });
  for (uint64_t i = 0; i < kTimes; ++i)
    ASSERT_EQ(run(target, memory.address(), {AtomicOp::fetch_add, 0, 1}, original), Outcome::done);
  program.join();
  EXPECT_EQ(__atomic_load_n(reinterpret_cast<uint64_t*>(memory.data()), __ATOMIC_SEQ_CST), 2 * kTimes);
}

TEST_P(Atomic, MemoryThatGoesAwayWithoutAnEventIsNoCrash) {
  const Mapping memory(1);
  const Target target = add(memory);
  uint64_t original = 0;
  for (const AtomicOp op : {AtomicOp::fetch_add, AtomicOp::compare_swap, AtomicOp::store}) {
    ASSERT_EQ(run(target, memory.address(), {op, 0, 1}, original), Outcome::done);
    ASSERT_EQ(mprotect(memory.data(), 4096, PROT_READ), 0);
    EXPECT_EQ(run(target, memory.address(), {op, 0, 1}, original), Outcome::violation);
    ASSERT_EQ(mprotect(memory.data(), 4096, PROT_READ | PROT_WRITE), 0);
    if (GetParam() == 0) return;  // a classic region is promised to stay mapped
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Atomic, testing::Values(0U, uint32_t{kOnDemand}),
                         [](const auto& kind) { return kind.param == 0 ? "Classic" : "OnDemand"; });

TEST(AtomicOnDemand, APageReadBeforeIsMadeWritableAndAChildKeepsItsOwn) {
  auto domain = make_domain();
  auto session = domain->attach_engine();
  const Mapping memory(1);
  *reinterpret_cast<uint64_t*>(memory.data()) = 7;
  const RegionResult region = domain->register_region({.domain = 1,
                                                       .address = memory.address(),
                                                       .length_bytes = memory.size(),
                                                       .iova = memory.address(),
                                                       .access = kAll | kOnDemand});
  ASSERT_EQ(region.error, 0);
  const Target target{region.key, 1, kRemoteAtomic};
  std::array<int, 2> go{};
  ASSERT_EQ(pipe(go.data()), 0);
  session->leave();
  // The monitor requests that engines leave their turns for a fork; this engine is outside a turn.
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    const bool told = read(go[0], &byte, 1) == 1;
    _exit(told && *reinterpret_cast<uint64_t*>(memory.data()) == 7 ? 0 : 1);
  }
  uint64_t original = 0;
  EXPECT_EQ(
      until_settled(*session, {target, memory.address(), 8, {9}},
                    [&] {
                      return session->atomic(target, memory.address(), {AtomicOp::fetch_add, 0, 1}, original);
                    }),
      Outcome::done);
  EXPECT_EQ(original, 7U);
  ASSERT_EQ(write(go[1], "x", 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(go[0]);
  close(go[1]);
}

TEST(Flush, NeedsItsRightAndPersistenceIsNotPromised) {
  auto domain = make_domain();
  auto session = domain->attach_engine();
  const Mapping memory(2);
  RegionRequest request{.domain = 1,
                        .address = memory.address(),
                        .length_bytes = memory.size(),
                        .iova = 0x10000,
                        .access = kLocalWrite | kRemoteWrite | kFlushGlobal};
  const RegionResult region = domain->register_region(request);
  ASSERT_EQ(region.error, 0);
  session->enter();
  const Target target{region.key, 1, kFlushGlobal};
  EXPECT_EQ(session->flush(target, 0x10000, 8192, FlushKind::global), Outcome::done);
  EXPECT_EQ(session->flush(target, 0x10000, 8193, FlushKind::global), Outcome::violation);
  EXPECT_EQ(session->flush({region.key, 1, kFlushPersistent}, 0x10000, 1, FlushKind::persistent),
            Outcome::violation);
  uint64_t va = 0;
  uint64_t length_bytes = 0;
  EXPECT_TRUE(session->range_of(region.key, va, length_bytes));
  EXPECT_EQ(va, 0x10000U);
  EXPECT_EQ(length_bytes, 8192U);
  session->leave();
  request.access |= kFlushPersistent;
  EXPECT_EQ(domain->register_region(request).error, EINVAL);
}

}  // namespace
}  // namespace faultline::odp::test::atomic_test
