// SPDX-License-Identifier: BSD-3-Clause
// Adaptive yield: the number of idle turns after which a polling program calls sched_yield(). If a peer or
// the switch waits for this CPU, spinning delays the awaited frame. If no thread waits, sched_yield() is a
// system call for nothing. If another thread keeps the CPU for long, the yield costs milliseconds. So the
// duration of the last yield decides when the next one is due.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace faultline::glue {

class AdaptiveYield {
 public:
  static constexpr uint32_t kLongestTurns = 256;
  static constexpr uint32_t kShortestTurns = 8;
  // Two context switches take longer than kNobodyNs; the work for a few packets takes less than kHogNs.
  static constexpr uint64_t kNobodyNs = 1'000;
  static constexpr uint64_t kHogNs = 100'000;

  [[nodiscard]] bool is_due(uint32_t idle_turns) const {
    return idle_turns != 0 && idle_turns % turns_.load(std::memory_order_relaxed) == 0;
  }

  /// Records the duration of a yield. Any thread; of two concurrent calls one counts.
  void note_yield(uint64_t took_ns) {
    const uint32_t turns = turns_.load(std::memory_order_relaxed);
    uint32_t next = kLongestTurns;
    if (took_ns < kNobodyNs)
      next = std::min(turns * 2, kLongestTurns);
    else if (took_ns < kHogNs)
      next = std::max(turns / 2, kShortestTurns);
    turns_.store(next, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint32_t> turns_{kLongestTurns};
};

}  // namespace faultline::glue
