// SPDX-License-Identifier: BSD-3-Clause
// When a polling thread takes its CPU for contended, and a thread's way around one CPU.
#include "pmd_glue/device/cpu_contention.hpp"

#include <thread>

#include <gtest/gtest.h>

#include "pmd_glue/device/thread_affinity.hpp"

namespace faultline::glue::cpu_contention_test {
namespace {

constexpr TimeNs kMillisecond = 1'000'000;
constexpr TimeNs kStart = 1'000 * kMillisecond;

TEST(CpuContention, BeginsWithALostRoundAndEndsByTime) {
  CpuContention contention;
  contention.note_round(kStart, kStart + CpuContention::kLostNs - 1);
  EXPECT_FALSE(contention.is_contended(kStart));
  contention.note_round(kStart, kStart + CpuContention::kLostNs);
  const TimeNs end = kStart + CpuContention::kLostNs + CpuContention::kShortestNs;
  EXPECT_TRUE(contention.is_contended(end - 1));
  EXPECT_FALSE(contention.is_contended(end));
}

// Each attempt to poll on costs a slice, so attempts become rare where they fail.
TEST(CpuContention, LastsLongerWithEachLossThatFollowsSoon) {
  CpuContention contention;
  TimeNs now = kStart;
  TimeNs period = CpuContention::kShortestNs;
  for (int losses = 0; losses < 10; ++losses) {
    contention.note_round(now, now + 4 * kMillisecond);
    now += 4 * kMillisecond + period;
    EXPECT_TRUE(contention.is_contended(now - 1)) << losses;
    EXPECT_FALSE(contention.is_contended(now)) << losses;
    period = std::min(2 * period, CpuContention::kLongestNs);
  }
  now += 2 * CpuContention::kLongestNs;
  contention.note_round(now, now + 4 * kMillisecond);
  EXPECT_FALSE(contention.is_contended(now + 4 * kMillisecond + CpuContention::kShortestNs));
}

TEST(CpuContention, EndsForAStreamAndNotForSingleMessages) {
  CpuContention contention;
  contention.note_round(kStart, kStart + 4 * kMillisecond);
  const TimeNs within = kStart + 5 * kMillisecond;
  for (int wakes = 0; wakes < 1'000; ++wakes) contention.note_wake(wakes % 8 == 0);
  EXPECT_TRUE(contention.is_contended(within));
  for (int wakes = 0; wakes < 20; ++wakes) contention.note_wake(true);
  EXPECT_FALSE(contention.is_contended(within));
}

cpu_set_t own_cpus() {
  cpu_set_t cpus;
  EXPECT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
  return cpus;
}

TEST(ThreadAffinity, LeavesOneCpuAndComesBack) {
  std::thread([] {
    const cpu_set_t before = own_cpus();
    if (CPU_COUNT(&before) < 2) return;  // it cannot leave
    int first = 0;
    while (!CPU_ISSET(first, &before)) ++first;
    ThreadAffinity affinity;
    affinity.avoid(first);
    const cpu_set_t reduced = own_cpus();
    EXPECT_FALSE(CPU_ISSET(first, &reduced));
    EXPECT_EQ(CPU_COUNT(&reduced), CPU_COUNT(&before) - 1);
    affinity.restore();
    const cpu_set_t after = own_cpus();
    EXPECT_TRUE(CPU_EQUAL(&after, &before));
  }).join();
}

TEST(ThreadAffinity, StaysOnAnOnlyCpuAndKeepsWhatOthersSet) {
  std::thread([] {
    const cpu_set_t before = own_cpus();
    int first = 0;
    while (!CPU_ISSET(first, &before)) ++first;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(first, &only);
    ThreadAffinity affinity;
    if (CPU_COUNT(&before) > 1) {
      affinity.avoid(first);
      ASSERT_EQ(sched_setaffinity(0, sizeof only, &only), 0);  // as taskset(1) does
      affinity.restore();
      const cpu_set_t kept = own_cpus();
      EXPECT_TRUE(CPU_EQUAL(&kept, &only));
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof only, &only), 0);
    affinity.avoid(first);
    const cpu_set_t kept = own_cpus();
    EXPECT_TRUE(CPU_EQUAL(&kept, &only));
  }).join();
}

}  // namespace
}  // namespace faultline::glue::cpu_contention_test
