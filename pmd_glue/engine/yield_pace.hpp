// SPDX-License-Identifier: BSD-3-Clause
// How long a program that polls for nothing keeps its CPU before it offers it to others. Where a peer or the
// switch between them waits for this very CPU, spinning only delays what is waited for; where nobody does,
// offering is a system call for nothing, and where somebody wants it for long, it costs milliseconds. So what
// the last offer led to decides when the next one is due.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace faultline::glue {

class YieldPace {
 public:
  static constexpr uint32_t kLongestTurns = 256;
  static constexpr uint32_t kShortestTurns = 8;
  // Two context switches take longer than the first, a few packets' work less than the second.
  static constexpr uint64_t kNobodyNs = 1'000;
  static constexpr uint64_t kHogNs = 100'000;

  [[nodiscard]] bool is_due(uint32_t idle_turns) const {
    return idle_turns != 0 && idle_turns % turns_.load(std::memory_order_relaxed) == 0;
  }

  /// How long the CPU was away. Any thread; of two at once one counts.
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
