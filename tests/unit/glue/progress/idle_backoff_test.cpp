// SPDX-License-Identifier: BSD-3-Clause
// How long a thread sleeps between two looks at a port that wakes no thread.
#include "pmd_glue/engine/idle_backoff.hpp"

#include <algorithm>

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

// Ten seconds are the neighbour cache's timeout: with 50 us throughout there would be 200,000 looks.
TEST(IdleBackoff, LooksFewerTimesTheLongerACallWaits) {
  TimeNs waited_ns = 0;
  int looks = 0;
  for (; waited_ns < 10'000 * kMillisecond; ++looks) {
    const TimeNs pause_ns = look_pause_ns(waited_ns);
    EXPECT_LE(pause_ns, std::max<TimeNs>(waited_ns / 8, 50 * kMicrosecond));
    waited_ns += pause_ns;
  }
  EXPECT_LE(looks, 5'100);
}

}  // namespace
}  // namespace faultline::glue::idle_backoff_test
