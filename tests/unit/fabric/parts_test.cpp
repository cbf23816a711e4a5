// SPDX-License-Identifier: BSD-3-Clause
// The order of events, and the statistics of queues.
#include <vector>

#include <gtest/gtest.h>

#include "apps/sim/fabric/event_queue.hpp"
#include "apps/sim/fabric/queue_lengths.hpp"

namespace faultline::fabric {
namespace {

TEST(EventQueue, TakesEventsByTimeAndThoseOfOneTimeInTheirOrder) {
  EventQueue events;
  const std::vector<TimePs> times{30, 10, 20, 10, 30, 10, 20};
  for (uint32_t i = 0; i < times.size(); ++i) events.add(times[i], EventKind::turn, i);
  std::vector<uint32_t> order;
  while (!events.empty()) order.push_back(events.take().target);
  EXPECT_EQ(order, (std::vector<uint32_t>{1, 3, 5, 2, 6, 0, 4}));
  EXPECT_EQ(events.next_ps(), kNeverPs);
}

TEST(QueueLengths, AreWeightedByTime) {
  QueueLengths lengths;
  lengths.note(0, 900);
  lengths.note(1'000, 1'000);  // 100 ps
  EXPECT_DOUBLE_EQ(lengths.mean_bytes(), 100);
  EXPECT_EQ(lengths.most_bytes(), 1'000U);
  EXPECT_EQ(lengths.percentile_bytes(0.5), 0U);
  EXPECT_EQ(lengths.percentile_bytes(0.9), 0U);
  EXPECT_EQ(lengths.percentile_bytes(0.91), 1'000U);
}

TEST(QueueLengths, RoundPercentilesUpByAnEighthAtMost) {
  for (uint64_t bytes = 1; bytes < uint64_t{1} << 36; bytes += bytes / 3 + 1) {
    QueueLengths lengths;
    lengths.note(bytes, 1'000);
    lengths.note(4 * bytes, 1'001);
    EXPECT_GE(lengths.percentile_bytes(0.5), bytes);
    EXPECT_LE(static_cast<double>(lengths.percentile_bytes(0.5)), static_cast<double>(bytes) * 1.125);
  }
}

}  // namespace
}  // namespace faultline::fabric
