// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/caller_tracker.hpp"

#include <gtest/gtest.h>

namespace faultline::glue::caller_tracker_test {
namespace {

constexpr uint64_t kSoonNs = CallerTracker::kAtOnceNs;
constexpr uint64_t kLateNs = CallerTracker::kAtOnceNs + 1;

void give(CallerTracker& pace, uint32_t completions, uint64_t back_after_ns) {
  for (uint64_t now_ns = 1'000'000; completions != 0; --completions, now_ns += 1'000'000) {
    pace.note_completion_returned(now_ns);
    pace.note_return(now_ns + back_after_ns);
  }
}

TEST(CallerTracker, TrustsNobodyAtFirst) {
  CallerTracker pace;
  EXPECT_FALSE(pace.is_prompt());
  give(pace, CallerTracker::kReturns - 1, kSoonNs);
  EXPECT_FALSE(pace.is_prompt());
}

TEST(CallerTracker, TrustsWhoHasComeBackAtOnceAgainAndAgain) {
  CallerTracker pace;
  give(pace, CallerTracker::kReturns, kSoonNs);
  EXPECT_TRUE(pace.is_prompt());
  give(pace, 3 * CallerTracker::kReturns, kSoonNs);
  EXPECT_TRUE(pace.is_prompt());
}

TEST(CallerTracker, TrustsNoLongerWhoWentAwayOnce) {
  CallerTracker pace;
  give(pace, 2 * CallerTracker::kReturns, kSoonNs);
  give(pace, 1, kLateNs);
  EXPECT_FALSE(pace.is_prompt());
  give(pace, CallerTracker::kReturns - 1, kSoonNs);
  EXPECT_FALSE(pace.is_prompt());
  give(pace, 1, kSoonNs);
  EXPECT_TRUE(pace.is_prompt());
}

TEST(CallerTracker, CountsReturnsOfCompletionsOnly) {
  CallerTracker pace;
  for (uint32_t i = 0; i < 2 * CallerTracker::kReturns; ++i) pace.note_return(i);
  EXPECT_FALSE(pace.is_prompt());
  give(pace, CallerTracker::kReturns, kSoonNs);
  for (uint64_t idle_ns = 0; idle_ns < 5; ++idle_ns) pace.note_return(idle_ns * 1'000'000'000);
  EXPECT_TRUE(pace.is_prompt());
}

}  // namespace
}  // namespace faultline::glue::caller_tracker_test
