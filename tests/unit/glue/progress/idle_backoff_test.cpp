// SPDX-License-Identifier: BSD-3-Clause
// How long a thread sleeps between two looks at a port that wakes no thread.
#include "pmd_glue/engine/idle_backoff.hpp"

#include <gtest/gtest.h>

namespace faultline::glue::idle_backoff_test {
namespace {

constexpr TimeNs kMicrosecond = 1'000;
constexpr TimeNs kMillisecond = 1'000'000;

TEST(IdleBackoff, GrowsWithTheTimeSinceTheLastFrame) {
  EXPECT_EQ(idle_backoff_ns(0, kMillisecond), kMillisecond);
  EXPECT_EQ(idle_backoff_ns(100 * kMillisecond, kMillisecond), 2 * kMillisecond);
  EXPECT_EQ(idle_backoff_ns(500 * kMillisecond, kMillisecond), 5 * kMillisecond);
}

// A program that the progress thread has just served is likely to spin on its memory.
TEST(IdleBackoff, LooksSoonAfterAProgramThatLeftWorkAMomentAgo) {
  EXPECT_EQ(driven_nap_ns(0), 50 * kMicrosecond);
  EXPECT_EQ(driven_nap_ns(400 * kMicrosecond), 50 * kMicrosecond);
  EXPECT_EQ(driven_nap_ns(8 * kMillisecond), kMillisecond);
  EXPECT_EQ(driven_nap_ns(16 * kMillisecond), 2 * kMillisecond);
  EXPECT_EQ(driven_nap_ns(~TimeNs{0}), 2 * kMillisecond);
}

}  // namespace
}  // namespace faultline::glue::idle_backoff_test
