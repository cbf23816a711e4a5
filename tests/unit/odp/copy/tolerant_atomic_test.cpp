// SPDX-License-Identifier: BSD-3-Clause
#include "odp/copy/tolerant_atomic.hpp"

#include <array>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "odp/copy/fault_handler.hpp"
#include "odp/copy/fault_signals.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test::tolerant_atomic_test {
namespace {

struct Example {
  AtomicRequest request;
  uint64_t after;
};
constexpr std::array kExamples{
    Example{{.op = AtomicOp::compare_swap, .compare = 40, .operand = 2}, 2},
    Example{{.op = AtomicOp::compare_swap, .compare = 41, .operand = 2}, 40},
    Example{{.op = AtomicOp::fetch_add, .operand = ~uint64_t{0}}, 39},
    Example{{.op = AtomicOp::store, .operand = 3}, 3},
};

/// With a restartable sequence an interruption may abandon the operation.
GuardedAtomic guarded(void* at, const AtomicRequest& request, uint64_t& original) {
  for (;;) {
    CopyTicket ticket;
    prepare_ticket(ticket);
    const GuardedAtomic result = guarded_atomic(at, request, original, ticket);
    if (result != GuardedAtomic::revoked) return result;
  }
}

class TolerantAtomic : public testing::Test {
 protected:
  void SetUp() override {
    install_fault_handler();
    prepare_restartable_copies();
  }
};

TEST_F(TolerantAtomic, DoesWhatItSays) {
  for (const Example& example : kExamples) {
    alignas(8) uint64_t word = 40;
    uint64_t original = 0;
    ASSERT_TRUE(tolerant_atomic(&word, example.request, original));
    EXPECT_EQ(word, example.after);
    EXPECT_EQ(original, 40U);
    word = 40;
    original = 0;
    ASSERT_EQ(guarded(&word, example.request, original), GuardedAtomic::done);
    EXPECT_EQ(word, example.after);
    EXPECT_EQ(original, 40U);
  }
}

TEST_F(TolerantAtomic, IsNotDoneInAbsentMemory) {
  void* const hole = low_address(4096);
  for (const Example& example : kExamples) {
    uint64_t original = 7;
    EXPECT_FALSE(tolerant_atomic(hole, example.request, original));
    EXPECT_EQ(guarded(hole, example.request, original), GuardedAtomic::fault);
    EXPECT_EQ(original, 7U);
  }
}

TEST_F(TolerantAtomic, IsIndivisible) {
  constexpr uint64_t kEach = 20'000;
  alignas(8) uint64_t word = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&word, i] {
      unblock_fault_signals();
      uint64_t original = 0;
      for (uint64_t n = 0; n < kEach; ++n) {
        const AtomicRequest one{.op = AtomicOp::fetch_add, .operand = 1};
        if (i % 2 == 0)
          static_cast<void>(tolerant_atomic(&word, one, original));
        else
          static_cast<void>(guarded(&word, one, original));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(word, 4 * kEach);
}

}  // namespace
}  // namespace faultline::odp::test::tolerant_atomic_test
