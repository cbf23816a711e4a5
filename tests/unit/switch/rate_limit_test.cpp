// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/rate_limit.hpp"

#include <gtest/gtest.h>

namespace faultline::switching::rate_limit_test {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;
constexpr uint32_t kFrame = 4'542;

/// Sends frames whenever the bucket lets it, in turns of `step`, for one second. Returns the bytes.
uint64_t send_for_a_second(RateLimit& bucket, TimeNs step, uint32_t frame_bytes = kFrame) {
  uint64_t bytes = 0;
  for (TimeNs now = kSecond; now < 2 * kSecond; now += step) {
    while (bucket.has_tokens(now) && bytes < 1'000'000'000) {
      bucket.take(frame_bytes);
      bytes += frame_bytes;
    }
  }
  return bytes;
}

TEST(RateLimit, WithoutARateNothingWaits) {
  RateLimit bucket;
  EXPECT_GE(send_for_a_second(bucket, kSecond / 2), 1'000'000'000U);
}

TEST(RateLimit, AFloodGetsTheRate) {
  // Steps that are no divisor of the bytes, and one as long as the switch sleeps.
  for (const TimeNs step : {TimeNs{333}, TimeNs{17'001}, TimeNs{1'000'000}}) {
    for (const uint32_t mbps : {10U, 100U, 1'000U}) {
      RateLimit bucket(mbps);
      const double wanted = 125'000.0 * mbps;
      EXPECT_NEAR(static_cast<double>(send_for_a_second(bucket, step)), wanted, wanted / 100 + 20'000)
          << mbps;
    }
  }
}

TEST(RateLimit, ShortFramesGetTheRateToo) {
  RateLimit bucket(100);
  EXPECT_NEAR(static_cast<double>(send_for_a_second(bucket, 5'000, 106)), 12'500'000.0, 150'000.0);
}

TEST(RateLimit, IdleTimeGivesOneBurstAndNoMore) {
  RateLimit bucket(1'000);
  ASSERT_TRUE(bucket.has_tokens(kSecond));
  bucket.take(1);
  uint64_t bytes = 0;
  while (bucket.has_tokens(3'600 * kSecond)) {
    bucket.take(kFrame);
    bytes += kFrame;
  }
  EXPECT_NEAR(static_cast<double>(bytes), 500'000.0, kFrame);  // 4 ms
}

TEST(RateLimit, ALowRateSendsLongFramesToo) {
  RateLimit bucket(1);
  EXPECT_NEAR(static_cast<double>(send_for_a_second(bucket, 1'000'000)),
              125'000.0 + RateLimit::kLeastBurstBytes, 2.0 * kFrame);
}

}  // namespace
}  // namespace faultline::switching::rate_limit_test
