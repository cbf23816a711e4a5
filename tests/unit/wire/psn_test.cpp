// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/packet/psn.hpp"

#include <gtest/gtest.h>

namespace faultline::wire::test::psn_test {
namespace {

constexpr uint32_t kRing = 1U << 24;
constexpr int32_t kHalf = 1 << 23;
constexpr uint32_t kStarts[] = {0, 1, 0x7ffffe, 0x7fffff, 0x800000, 0x800001, kRing - 2, kRing - 1};
constexpr uint32_t kSteps[] = {0, 1, 2, 255, 65536, 0x7ffffe, 0x7fffff};

TEST(Psn, WrapsAtTwoToTheTwentyFour) {
  EXPECT_EQ(Psn(kRing - 1).next(), Psn(0));
  EXPECT_EQ(Psn(0).minus(1), Psn(kRing - 1));
  EXPECT_EQ(Psn(kRing - 3).plus(5), Psn(2));
  EXPECT_EQ(Psn(0xff000001).value(), 1U);
  EXPECT_LT(Psn(kRing - 1), Psn(0));
  EXPECT_GT(Psn(3), Psn(kRing - 3));
}

TEST(Psn, DistanceUndoesPlusAndMinus) {
  for (const uint32_t start : kStarts) {
    for (const uint32_t step : kSteps) {
      const Psn from(start);
      EXPECT_EQ(from.plus(step).distance_from(from), static_cast<int32_t>(step));
      EXPECT_EQ(from.minus(step).distance_from(from), -static_cast<int32_t>(step));
      EXPECT_EQ(from.plus(step).minus(step), from);
      EXPECT_LT(from.plus(step).value(), kRing);
    }
  }
}

TEST(Psn, OrderIsThatOfTheDistance) {
  for (const uint32_t start : kStarts) {
    for (const uint32_t step : kSteps) {
      const Psn a(start);
      const Psn b = a.plus(step);
      EXPECT_EQ(a < b, step != 0);
      EXPECT_EQ(b > a, step != 0);
      EXPECT_TRUE(a <= b);
      EXPECT_TRUE(b >= a);
      EXPECT_EQ(a == b, step == 0);
    }
  }
}

// IBA 9.7.2: half of the PSN space is before, half after; the exactly opposite PSN counts as before.
TEST(Psn, TheOppositePointIsBefore) {
  for (const uint32_t start : kStarts) {
    const Psn a(start);
    EXPECT_EQ(a.plus(static_cast<uint32_t>(kHalf)).distance_from(a), -kHalf);
    EXPECT_LT(a.plus(static_cast<uint32_t>(kHalf)), a);
    EXPECT_GT(a.plus(static_cast<uint32_t>(kHalf) - 1), a);
  }
}

}  // namespace
}  // namespace faultline::wire::test::psn_test
