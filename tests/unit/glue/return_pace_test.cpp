// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/return_pace.hpp"

#include <gtest/gtest.h>

namespace faultline::glue {
namespace {

constexpr uint64_t kSoonNs = ReturnPace::kAtOnceNs;
constexpr uint64_t kLateNs = ReturnPace::kAtOnceNs + 1;

void give(ReturnPace& pace, uint32_t completions, uint64_t back_after_ns) {
  for (uint64_t now_ns = 1'000'000; completions != 0; --completions, now_ns += 1'000'000) {
    pace.note_given(now_ns);
    pace.note_return(now_ns + back_after_ns);
  }
}

TEST(ReturnPace, TrustsNobodyAtFirst) {
  ReturnPace pace;
  EXPECT_FALSE(pace.is_prompt());
  give(pace, ReturnPace::kReturns - 1, kSoonNs);
  EXPECT_FALSE(pace.is_prompt());
}

TEST(ReturnPace, TrustsWhoHasComeBackAtOnceAgainAndAgain) {
  ReturnPace pace;
  give(pace, ReturnPace::kReturns, kSoonNs);
  EXPECT_TRUE(pace.is_prompt());
  give(pace, 3 * ReturnPace::kReturns, kSoonNs);
  EXPECT_TRUE(pace.is_prompt());
}

TEST(ReturnPace, TrustsNoLongerWhoWentAwayOnce) {
  ReturnPace pace;
  give(pace, 2 * ReturnPace::kReturns, kSoonNs);
  give(pace, 1, kLateNs);
  EXPECT_FALSE(pace.is_prompt());
  give(pace, ReturnPace::kReturns - 1, kSoonNs);
  EXPECT_FALSE(pace.is_prompt());
  give(pace, 1, kSoonNs);
  EXPECT_TRUE(pace.is_prompt());
}

TEST(ReturnPace, CountsReturnsOfCompletionsOnly) {
  ReturnPace pace;
  for (uint32_t i = 0; i < 2 * ReturnPace::kReturns; ++i) pace.note_return(i);
  EXPECT_FALSE(pace.is_prompt());
  give(pace, ReturnPace::kReturns, kSoonNs);
  for (uint64_t idle_ns = 0; idle_ns < 5; ++idle_ns) pace.note_return(idle_ns * 1'000'000'000);
  EXPECT_TRUE(pace.is_prompt());
}

}  // namespace
}  // namespace faultline::glue
