// SPDX-License-Identifier: BSD-3-Clause
// The two algorithms compared with the equations of their papers.
#include <cmath>

#include <gtest/gtest.h>

#include "stack/transport/congestion/dcqcn.hpp"
#include "stack/transport/congestion/pacing.hpp"
#include "stack/transport/congestion/swift.hpp"

namespace faultline::transport {
namespace {

constexpr TimeNs kUs = 1'000;

/// Sends 1 GB/s for a while, to have an initial rate.
TimeNs send_at_a_gigabyte(RateControl& control, TimeNs now) {
  for (int i = 0; i < 200; ++i) control.on_sent(1'000, now += kUs);
  return now;
}

TEST(Dcqcn, IsUnlimitedUntilTheFirstNotificationAndThenHalvesWhatWasSent) {
  const DcqcnConfig config;
  Dcqcn control(config);
  const TimeNs now = send_at_a_gigabyte(control, kUs);
  EXPECT_EQ(control.rate(now), RateControl::kUnlimited);
  control.on_notification(now);
  EXPECT_NEAR(static_cast<double>(control.rate(now)), 0.5e9, 0.02e9);  // alpha starts at 1: R_C (1 - 1/2)
  EXPECT_NEAR(static_cast<double>(control.target_bytes_per_s()), 1e9, 0.04e9);
}

TEST(Dcqcn, AlphaDecaysWithTimeAndGrowsWithNotifications) {
  const DcqcnConfig config;
  Dcqcn control(config);
  TimeNs now = send_at_a_gigabyte(control, kUs);
  control.on_notification(now);
  EXPECT_DOUBLE_EQ(control.alpha(), 1.0);
  static_cast<void>(control.rate(now += 10 * config.alpha_timer_ns));
  double expected = 1.0;
  for (int i = 0; i < 10; ++i) expected *= 1 - config.gain;
  EXPECT_DOUBLE_EQ(control.alpha(), expected);
  control.on_notification(now);
  EXPECT_DOUBLE_EQ(control.alpha(), (1 - config.gain) * expected + config.gain);
}

TEST(Dcqcn, RecoversHalfTheWayEachRoundAndThenAdds) {
  DcqcnConfig config;
  config.increase_bytes = uint64_t{1} << 40;  // only the timer
  Dcqcn control(config);
  TimeNs now = send_at_a_gigabyte(control, kUs);
  control.on_notification(now);
  auto current = static_cast<double>(control.rate(now));
  const auto target = static_cast<double>(control.target_bytes_per_s());
  for (uint32_t round = 1; round < config.fast_recovery_rounds; ++round) {
    current = (current + target) / 2;
    EXPECT_NEAR(static_cast<double>(control.rate(now += config.increase_timer_ns)), current, 4);
    EXPECT_NEAR(static_cast<double>(control.target_bytes_per_s()), target, 1);
  }
  static_cast<void>(control.rate(now += config.increase_timer_ns));
  EXPECT_NEAR(static_cast<double>(control.target_bytes_per_s()),
              target + static_cast<double>(config.additive_bytes_per_s), 1);
}

TEST(Dcqcn, NeverFallsBelowItsLeastRateAndEndsAtLineRate) {
  DcqcnConfig config;
  config.line_bytes_per_s = 100'000'000;
  Dcqcn control(config);
  TimeNs now = send_at_a_gigabyte(control, kUs);
  for (int i = 0; i < 200; ++i) control.on_notification(now += kUs);
  EXPECT_EQ(control.rate(now), config.min_bytes_per_s);
  for (int i = 0; i < 4000 && control.rate(now) != RateControl::kUnlimited; ++i)
    now += config.increase_timer_ns;
  EXPECT_EQ(control.rate(now), RateControl::kUnlimited);
}

TEST(Swift, AddsBelowTheTargetAndCutsInProportionAboveOnceARoundTrip) {
  SwiftConfig config;
  config.scaling_range_ns = 0;
  Swift control(config, 4096);
  EXPECT_EQ(control.rate(0), RateControl::kUnlimited) << "nothing is known yet";
  TimeNs now = 1'000 * kUs;
  control.on_round_trip(10 * kUs, now);
  const double before = control.window_packets();
  control.on_round_trip(10 * kUs, now += 10 * kUs);
  EXPECT_DOUBLE_EQ(control.window_packets(), before + config.additive_packets);
  control.on_round_trip(10 * kUs, now += 5 * kUs);
  EXPECT_DOUBLE_EQ(control.window_packets(), before + 1.5 * config.additive_packets);
  const double high = control.window_packets();
  control.on_round_trip(62'500, now += 100 * kUs);
  EXPECT_NEAR(control.window_packets(), high * (1 - config.beta * 12.5 / 62.5), 1e-9);
  const double cut = control.window_packets();
  control.on_round_trip(500 * kUs, now += kUs);
  EXPECT_DOUBLE_EQ(control.window_packets(), cut) << "within the same round trip";
  control.on_round_trip(500 * kUs, now += 1'000 * kUs);
  EXPECT_DOUBLE_EQ(control.window_packets(), cut * (1 - config.max_decrease));
  EXPECT_GT(control.rate(now), 0U);
}

TEST(Swift, BelowOnePacketEachAcknowledgedPacketAddsTheSameStep) {
  SwiftConfig config;
  config.initial_window_packets = 0.1;
  config.additive_packets = 0.25;
  Swift control(config, 4096);
  TimeNs now = 1'000 * kUs;
  control.on_round_trip(10 * kUs, now += 100 * kUs);
  EXPECT_DOUBLE_EQ(control.window_packets(), 0.35);
  control.on_round_trip(10 * kUs, now += 29 * kUs);
  EXPECT_DOUBLE_EQ(control.window_packets(), 0.6) << "not one step for each of the round trips that passed";
}

TEST(Swift, AShortRoundTripAfterLongOnesIsNotAWholeOne) {
  SwiftConfig config;
  Swift control(config, 4096);
  TimeNs now = 1'000 * kUs;
  control.on_round_trip(40 * kUs, now);
  const double before = control.window_packets();
  control.on_round_trip(8 * kUs, now += 8 * kUs);  // smoothed: 36 us
  EXPECT_DOUBLE_EQ(control.window_packets(), before + config.additive_packets * 8 / 36);
}

TEST(Swift, PacesByTheNewestRoundTripIfTheOthersAreOld) {
  SwiftConfig config;
  config.initial_window_packets = config.max_window_packets = 0.5;
  Swift control(config, 4096);
  TimeNs now = 1'000 * kUs;
  control.on_round_trip(40 * kUs, now);
  control.on_round_trip(20 * kUs, now += 20 * kUs);
  EXPECT_NEAR(static_cast<double>(control.rate(now)), 0.5 * 4096 / 37.5e-6, 1);
  control.on_round_trip(10 * kUs, now += 80 * kUs);
  EXPECT_NEAR(static_cast<double>(control.rate(now)), 0.5 * 4096 / 10e-6, 1);
}

TEST(Swift, ScalesTheTargetByTheWindow) {
  // Of a window of 1 packet: (1/sqrt(1) - 1/sqrt(100)) / (1/sqrt(0.1) - 1/sqrt(100)) of the range.
  const double of_one = (1 - 0.1) / (std::sqrt(10.0) - 0.1);
  const struct {
    double window_packets;
    double added;
  } rows[] = {{0.02, 1}, {0.1, 1}, {1, of_one}, {100, 0}, {200, 0}};
  for (const auto& row : rows) {
    SwiftConfig config;
    config.initial_window_packets = row.window_packets;
    config.scaling_range_ns = 30'000;
    const auto target_ns = config.target_delay_ns + static_cast<uint64_t>(30'000 * row.added);
    Swift below(config, 4096), above(config, 4096);
    below.on_round_trip(target_ns - 10, 1'000 * kUs);
    EXPECT_GT(below.window_packets(), row.window_packets);
    above.on_round_trip(target_ns + 10, 1'000 * kUs);
    EXPECT_LT(above.window_packets(), row.window_packets);
  }
}

TEST(Swift, BoundsWhatIsInFlightByTheWindowRoundedUp) {
  SwiftConfig config;
  config.initial_window_packets = 16;
  Swift control(config, 4096);
  EXPECT_EQ(control.most_in_flight_packets(), 16U) << "also before the first round trip";
  TimeNs now = 1'000 * kUs;
  for (int i = 0; i < 40; ++i) {
    control.on_round_trip(500 * kUs, now += 1'000 * kUs);
    const double window = control.window_packets();
    EXPECT_EQ(control.most_in_flight_packets(), window < 1 ? 1 : static_cast<uint32_t>(std::ceil(window)));
    EXPECT_LE(control.ack_every_packets(), control.most_in_flight_packets());
  }
  EXPECT_DOUBLE_EQ(control.window_packets(), config.min_window_packets);
}

TEST(Dcqcn, DoesNotBoundWhatIsInFlight) {
  const DcqcnConfig config;
  EXPECT_EQ(Dcqcn(config).most_in_flight_packets(), RateControl::kUnlimitedPackets);
}

TEST(Pacing, KeepsTheRateAndMakesUpForALateTurn) {
  Pacing pacing;
  TimeNs now = 1'000 * kUs;
  uint64_t sent = 0;
  for (int i = 0; i < 100; ++i) {
    while (pacing.next_ns() <= now) {
      pacing.on_sent(1'000, 1'000'000'000, now);  // 1 us each
      ++sent;
    }
    now += 10 * kUs;
  }
  EXPECT_NEAR(static_cast<double>(sent), 1'000, Pacing::kCreditNs / 1'000 + 1);
}

}  // namespace
}  // namespace faultline::transport
