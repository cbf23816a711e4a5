// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/yield_pace.hpp"

#include <gtest/gtest.h>

namespace faultline::glue {
namespace {

uint32_t first_due(const YieldPace& pace) {
  uint32_t idle_turns = 0;
  while (!pace.is_due(idle_turns)) ++idle_turns;
  return idle_turns;
}

TEST(YieldPace, OffersLateWhereNobodyIsKnownToWait) {
  const YieldPace pace;
  EXPECT_EQ(first_due(pace), YieldPace::kLongestTurns);
}

TEST(YieldPace, OffersSoonerToWhoReturnsTheCpuSoon) {
  YieldPace pace;
  pace.note_yield(8'000);
  EXPECT_EQ(first_due(pace), YieldPace::kLongestTurns / 2);
  for (int i = 0; i < 20; ++i) pace.note_yield(8'000);
  EXPECT_EQ(first_due(pace), YieldPace::kShortestTurns);
}

TEST(YieldPace, OffersLaterWhereNobodyTakesIt) {
  YieldPace pace;
  for (int i = 0; i < 20; ++i) pace.note_yield(8'000);
  pace.note_yield(300);
  EXPECT_EQ(first_due(pace), YieldPace::kShortestTurns * 2);
  for (int i = 0; i < 20; ++i) pace.note_yield(300);
  EXPECT_EQ(first_due(pace), YieldPace::kLongestTurns);
}

TEST(YieldPace, OffersLateAgainAtOnceWhereSomebodyKeepsIt) {
  YieldPace pace;
  for (int i = 0; i < 20; ++i) pace.note_yield(8'000);
  pace.note_yield(3'000'000);
  EXPECT_EQ(first_due(pace), YieldPace::kLongestTurns);
}

TEST(YieldPace, OffersAgainAndAgainWhileNothingComes) {
  const YieldPace pace;
  EXPECT_TRUE(pace.is_due(3 * YieldPace::kLongestTurns));
  EXPECT_FALSE(pace.is_due(3 * YieldPace::kLongestTurns + 1));
}

}  // namespace
}  // namespace faultline::glue
