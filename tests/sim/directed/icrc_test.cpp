// SPDX-License-Identifier: BSD-3-Clause
// The ICRC between two ends: computed during the payload copy or over the frame, or disabled at both ends.
#include <algorithm>

#include "stack/wire/packet/frame.hpp"
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::icrc_test {
namespace {

using transport::CompletionStatus;
using transport::CoreConfig;

void leave_out(CoreConfig& core, bool of_sent, bool of_received) {
  if (of_sent) core.wire_checksums |= static_cast<uint8_t>(wire::Checksums::no_icrc);
  core.verify_icrc = !of_received;
}

uint64_t wrong_icrcs(const transport::CoreCounters& counters) {
  return counters.parse_errors[static_cast<size_t>(wire::ParseError::icrc)];
}

TEST(Icrc, IsRightOnEitherSideOfTheLengthFromWhichTheCopyTakesIt) {
  for (const bool left_out : {false, true}) {
    SimulationScript script = quiet_fabric();
    leave_out(script.a.core, left_out, left_out);
    leave_out(script.b.core, left_out, left_out);
    for (const uint32_t bytes : {1U, 64U, 255U, 256U, 257U, 1000U, 4096U, 4097U, 20'001U}) {
      Pair pair(script);
      pair.write(bytes);
      pair.run();
      EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, bytes)) << bytes;
      std::ranges::fill(pair.pinned_a.bytes, uint8_t{0});
      pair.read(bytes);
      pair.run();
      EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, bytes)) << bytes;
      EXPECT_EQ(Pair::statuses(pair.a.poll_sends()),
                (Statuses{CompletionStatus::success, CompletionStatus::success}));
      EXPECT_EQ(wrong_icrcs(pair.counters_a()) + wrong_icrcs(pair.counters_b()), 0U);
    }
  }
}

TEST(Icrc, WhoVerifiesItTakesNothingWithoutIt) {
  SimulationScript script = quiet_fabric();
  leave_out(script.a.core, true, false);
  Pair pair(script);
  const std::vector<uint8_t> before = pair.pinned_b.bytes;
  pair.write(4096);
  pair.run();
  EXPECT_GT(wrong_icrcs(pair.counters_b()), 0U);
  EXPECT_EQ(pair.pinned_b.bytes, before);
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::retry_exceeded});
}

TEST(Icrc, WhoDoesNotVerifyItTakesAnyones) {
  SimulationScript script = quiet_fabric();
  leave_out(script.b.core, false, true);
  Pair pair(script);
  pair.write(4096);
  pair.run();
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 4096));
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::success});
}

}  // namespace
}  // namespace faultline::sim::icrc_test
