// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/ddmin.hpp"

#include <algorithm>
#include <bit>
#include <set>

#include <gtest/gtest.h>

namespace faultline::cli::ddmin_test {
namespace {

constexpr size_t kAny = 100'000;

using Bits = unsigned;

Bits bits_of(const Subset& subset) {
  Bits bits = 0;
  for (const size_t i : subset) bits |= 1U << i;
  return bits;
}

/// Reduces `count` decisions of a test that fails as `fails` has it, and expects the promises of the header.
Reduction check(size_t count, const std::function<bool(Bits)>& fails, size_t most = kAny) {
  std::set<Bits> tried;
  const Reduction reduction = reduce(count, most, [&](const Subset& subset) {
    EXPECT_TRUE(std::ranges::is_sorted(subset));
    EXPECT_FALSE(subset.empty()) << "it passes with none";
    EXPECT_LT(subset.size(), count) << "it fails with all";
    EXPECT_TRUE(tried.insert(bits_of(subset)).second) << "tried twice";
    return fails(bits_of(subset)) ? Trial::fails : Trial::passes;
  });
  EXPECT_EQ(reduction.trials, tried.size());
  EXPECT_LE(reduction.trials, most);
  const Bits kept = bits_of(reduction.kept);
  EXPECT_TRUE(fails(kept));
  if (!reduction.is_minimal) return reduction;
  for (const size_t i : reduction.kept) {
    const Bits rest = kept & ~(1U << i);
    EXPECT_TRUE(rest == 0 || !fails(rest)) << "it fails without decision " << i;
  }
  return reduction;
}

TEST(Ddmin, KeepsNothingOfNothing) {
  const Reduction none = check(0, [](Bits) { return true; });
  EXPECT_TRUE(none.kept.empty());
  EXPECT_EQ(none.trials, 0U);
}

TEST(Ddmin, KeepsTheOnlyOneWithoutATrial) {
  const Reduction one = check(1, [](Bits bits) { return bits != 0; });
  EXPECT_EQ(one.kept, Subset{0});
  EXPECT_TRUE(one.is_minimal);
  EXPECT_EQ(one.trials, 0U);
}

TEST(Ddmin, FindsEachSetOfCausesOfAMonotoneTest) {
  constexpr size_t kCount = 8;
  for (Bits cause = 1; cause < 1U << kCount; ++cause) {
    const Reduction found = check(kCount, [cause](Bits bits) { return (bits & cause) == cause; });
    EXPECT_EQ(bits_of(found.kept), cause);
    EXPECT_TRUE(found.is_minimal);
  }
}

TEST(Ddmin, FindsOneOfTwoCauses) {
  constexpr size_t kCount = 6;
  for (Bits first = 1; first < 1U << kCount; ++first)
    for (Bits second = 1; second < 1U << kCount; ++second) {
      const Reduction found = check(kCount, [first, second](Bits bits) {
        return (bits & first) == first || (bits & second) == second;
      });
      const Bits kept = bits_of(found.kept);
      EXPECT_TRUE(kept == first || kept == second) << first << " " << second << " gave " << kept;
    }
}

/// Each test of four decisions that fails with all of them and passes with none: 2^14, most of them not
/// monotone.
TEST(Ddmin, ReducesEveryTestOfFourDecisions) {
  constexpr Bits kAll = 15;
  for (unsigned table = 0; table < 1U << 14U; ++table) {
    const auto fails = [table](Bits bits) {
      return bits == kAll || (bits != 0 && (table >> (bits - 1) & 1U) != 0);
    };
    EXPECT_TRUE(check(4, fails).is_minimal);
  }
}

/// Failures that another decision hides: with an even number of them the test passes.
TEST(Ddmin, EndsWhereFailuresHideEachOther) {
  const Reduction found = check(9, [](Bits bits) { return std::popcount(bits) % 2 == 1; });
  EXPECT_EQ(found.kept.size(), 1U);
}

TEST(Ddmin, NeedsFewTrialsForOneCauseAmongMany) {
  size_t trials = 0;
  const Reduction found = reduce(1024, kAny, [&trials](const Subset& subset) {
    ++trials;
    return std::ranges::find(subset, size_t{777}) != subset.end() ? Trial::fails : Trial::passes;
  });
  EXPECT_EQ(found.kept, Subset{777});
  EXPECT_LE(trials, 20U) << "a binary search has ten steps of at most two trials";
}

TEST(Ddmin, StopsAtTheMostTrialsWithASetThatFails) {
  const auto fails = [](Bits bits) { return (bits & 0x8421U) == 0x8421U; };
  const size_t all = check(16, fails).trials;
  for (size_t most = 0; most < all; ++most) {
    const Reduction part = check(16, fails, most);
    EXPECT_EQ(part.trials, most);
    EXPECT_FALSE(part.is_minimal);
  }
  EXPECT_TRUE(check(16, fails, all).is_minimal);
}

TEST(Ddmin, StopsWhereATrialHasNoResult) {
  size_t trials = 0;
  const Reduction part =
      reduce(16, kAny, [&trials](const Subset&) { return ++trials == 3 ? Trial::unknown : Trial::passes; });
  EXPECT_EQ(trials, 3U);
  EXPECT_EQ(part.kept.size(), 16U);
  EXPECT_FALSE(part.is_minimal);
}

}  // namespace
}  // namespace faultline::cli::ddmin_test
