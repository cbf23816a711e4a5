// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/adaptive_yield.hpp"

#include <gtest/gtest.h>

namespace faultline::glue {
namespace {

uint32_t first_due(const AdaptiveYield& pace) {
  uint32_t idle_turns = 0;
  while (!pace.is_due(idle_turns)) ++idle_turns;
  return idle_turns;
}

TEST(AdaptiveYield, OffersLateWhereNobodyIsKnownToWait) {
  const AdaptiveYield pace;
  EXPECT_EQ(first_due(pace), AdaptiveYield::kLongestTurns);
}

TEST(AdaptiveYield, OffersSoonerToWhoReturnsTheCpuSoon) {
  AdaptiveYield pace;
  pace.note_yield(8'000);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kLongestTurns / 2);
  for (int i = 0; i < 20; ++i) pace.note_yield(8'000);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kShortestTurns);
}

TEST(AdaptiveYield, OffersLaterWhereNobodyTakesIt) {
  AdaptiveYield pace;
  for (int i = 0; i < 20; ++i) pace.note_yield(8'000);
  pace.note_yield(300);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kShortestTurns * 2);
  for (int i = 0; i < 20; ++i) pace.note_yield(300);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kLongestTurns);
}

TEST(AdaptiveYield, OffersLateAgainAtOnceWhereSomebodyKeepsIt) {
  AdaptiveYield pace;
  for (int i = 0; i < 20; ++i) pace.note_yield(8'000);
  pace.note_yield(3'000'000);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kLongestTurns);
}

TEST(AdaptiveYield, OffersAgainAndAgainWhileNothingComes) {
  const AdaptiveYield pace;
  EXPECT_TRUE(pace.is_due(3 * AdaptiveYield::kLongestTurns));
  EXPECT_FALSE(pace.is_due(3 * AdaptiveYield::kLongestTurns + 1));
}

}  // namespace
}  // namespace faultline::glue
