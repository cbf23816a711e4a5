// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/adaptive_yield.hpp"

#include <gtest/gtest.h>

namespace faultline::glue::adaptive_yield_test {
namespace {

uint32_t first_due(const AdaptiveYield& pace) {
  uint32_t idle_turns = 0;
  while (!pace.is_due(idle_turns)) ++idle_turns;
  return idle_turns;
}

/// A yield, and the turn after it.
void yield(AdaptiveYield& pace, uint64_t took_ns, TurnWork work = TurnWork::none) {
  pace.note_yield(took_ns);
  pace.note_turn(work);
}

TEST(AdaptiveYield, OffersLateWhereNobodyIsKnownToWait) {
  const AdaptiveYield pace;
  EXPECT_EQ(first_due(pace), AdaptiveYield::kLongestTurns);
}

TEST(AdaptiveYield, OffersSoonerToWhoReturnsTheCpuSoon) {
  AdaptiveYield pace;
  yield(pace, 8'000);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kLongestTurns / 2);
  for (int i = 0; i < 20; ++i) yield(pace, 8'000);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kShortestTurns);
}

TEST(AdaptiveYield, OffersLaterWhereNobodyTakesIt) {
  AdaptiveYield pace;
  for (int i = 0; i < 20; ++i) yield(pace, 8'000);
  yield(pace, 300);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kShortestTurns * 2);
  for (int i = 0; i < 20; ++i) yield(pace, 300);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kLongestTurns);
}

TEST(AdaptiveYield, OffersLaterWhereNobodyTakesItAndSystemCallsAreSlow) {
  constexpr uint64_t kCallNs = 1'100;
  AdaptiveYield pace(kCallNs);
  for (int i = 0; i < 20; ++i) yield(pace, AdaptiveYield::kNobodyCalls * kCallNs);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kShortestTurns);
  for (int i = 0; i < 20; ++i) yield(pace, AdaptiveYield::kNobodyCalls * kCallNs - 1);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kLongestTurns);
}

TEST(AdaptiveYield, OffersLateAgainAtOnceWhereSomebodyKeepsIt) {
  AdaptiveYield pace;
  for (int i = 0; i < 20; ++i) yield(pace, 8'000);
  yield(pace, 3'000'000);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kLongestTurns);
}

TEST(AdaptiveYield, OffersSoonerToAPeerThatWorksLongAndLeavesFrames) {
  AdaptiveYield pace;
  for (int i = 0; i < 20; ++i) yield(pace, AdaptiveYield::kSliceNs - 1, TurnWork::few_frames);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kShortestTurns);
}

TEST(AdaptiveYield, OffersLateAgainWhereALongYieldBringsNoFrame) {
  AdaptiveYield pace;
  for (int i = 0; i < 20; ++i) yield(pace, 8'000);
  yield(pace, AdaptiveYield::kHogNs, TurnWork::none);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kLongestTurns);
}

TEST(AdaptiveYield, OffersLaterWhereAThreadUsesItsSliceAlthoughFramesWait) {
  AdaptiveYield pace;
  for (int i = 0; i < 20; ++i) yield(pace, 8'000);
  yield(pace, AdaptiveYield::kSliceNs, TurnWork::few_frames);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kShortestTurns * 2);
  for (int i = 0; i < 20; ++i) yield(pace, AdaptiveYield::kSliceNs, TurnWork::few_frames);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kLongestTurns);
}

TEST(AdaptiveYield, KeepsItsPaceForAPeerWhoseLongBurstLeavesManyFrames) {
  AdaptiveYield pace;
  for (int i = 0; i < 20; ++i) yield(pace, 8'000);
  for (int i = 0; i < 200; ++i) {
    for (uint32_t k = 1; k < AdaptiveYield::kUndecidedYields; ++k)
      yield(pace, AdaptiveYield::kSliceNs, TurnWork::many_frames);
    EXPECT_EQ(first_due(pace), AdaptiveYield::kShortestTurns);
    yield(pace, AdaptiveYield::kSliceNs - 1, TurnWork::many_frames);
  }
}

TEST(AdaptiveYield, OffersLaterWhereAThreadKeepsTheCpuWhileFramesOfAnotherCpuCome) {
  AdaptiveYield pace;
  for (int i = 0; i < 20; ++i) yield(pace, 8'000);
  const auto keep = [&] {
    for (uint32_t k = 0; k < AdaptiveYield::kUndecidedYields; ++k)
      yield(pace, 3'000'000, TurnWork::many_frames);
  };
  keep();
  EXPECT_EQ(first_due(pace), AdaptiveYield::kShortestTurns * 2);
  for (int i = 0; i < 5; ++i) keep();
  EXPECT_EQ(first_due(pace), AdaptiveYield::kLongestTurns);
}

TEST(AdaptiveYield, OnlyTheFirstTurnAfterAYieldCounts) {
  AdaptiveYield pace;
  yield(pace, 8'000);
  for (int i = 0; i < 20; ++i) pace.note_turn(TurnWork::few_frames);
  EXPECT_EQ(first_due(pace), AdaptiveYield::kLongestTurns / 2);
}

TEST(AdaptiveYield, OffersAgainAndAgainWhileNothingComes) {
  const AdaptiveYield pace;
  EXPECT_TRUE(pace.is_due(3 * AdaptiveYield::kLongestTurns));
  EXPECT_FALSE(pace.is_due(3 * AdaptiveYield::kLongestTurns + 1));
}

}  // namespace
}  // namespace faultline::glue::adaptive_yield_test
