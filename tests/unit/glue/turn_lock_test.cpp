// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/turn_lock.hpp"

#include <mutex>
#include <thread>

#include <gtest/gtest.h>

namespace faultline::glue::turn_lock_test {
namespace {

TEST(TurnLock, KnowsWhetherTheCallerHasTheTurn) {
  TurnLock turns;
  EXPECT_FALSE(turns.is_held_by_caller());
  ASSERT_TRUE(turns.try_lock());
  EXPECT_TRUE(turns.is_held_by_caller());
  std::thread([&] {
    EXPECT_FALSE(turns.is_held_by_caller());
    EXPECT_FALSE(turns.try_lock());
  }).join();
  turns.unlock();
  EXPECT_FALSE(turns.is_held_by_caller());
  std::thread([&] {
    const std::lock_guard turn(turns);
    EXPECT_TRUE(turns.is_held_by_caller());
  }).join();
  EXPECT_TRUE(turns.try_lock());
  turns.unlock();
}

}  // namespace
}  // namespace faultline::glue::turn_lock_test
