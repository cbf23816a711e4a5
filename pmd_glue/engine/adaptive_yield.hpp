// SPDX-License-Identifier: BSD-3-Clause
// Adaptive yield: the number of idle turns after which a polling program calls sched_yield(). If a peer or
// the switch waits for this CPU, spinning delays the awaited frame. If no thread waits, sched_yield() is a
// system call for nothing. If another thread keeps the CPU for long, the yield costs milliseconds. So the
// duration of the last yield, and whether frames waited after it, decide when the next one is due.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace faultline::glue {

class AdaptiveYield {
 public:
  static constexpr uint32_t kLongestTurns = 256;
  static constexpr uint32_t kShortestTurns = 8;
  // A yield that takes less than kNobodyNs, or than kNobodyCalls system calls, was to no thread: two context
  // switches take longer. The work for a few packets takes less than kHogNs.
  static constexpr uint64_t kNobodyNs = 1'000;
  static constexpr uint64_t kNobodyCalls = 2;
  static constexpr uint64_t kHogNs = 100'000;
  // The scheduler's shortest slice (Linux, base_slice_ns). A thread that returned the CPU earlier did so by
  // itself. If it also left frames, it is a peer with a long burst of work rather than a hog.
  static constexpr uint64_t kSliceNs = 700'000;

  /// `system_call_ns`: what a system call without work takes, more than 1 us on some virtual machines.
  explicit AdaptiveYield(uint64_t system_call_ns = 0)
      : nobody_ns_(std::max(kNobodyNs, kNobodyCalls * system_call_ns)) {}

  [[nodiscard]] bool is_due(uint32_t idle_turns) const {
    return idle_turns != 0 && idle_turns % turns_.load(std::memory_order_relaxed) == 0;
  }

  /// Records the duration of a yield. The first turn after it decides: see note_turn().
  void note_yield(uint64_t took_ns) {
    took_ns_.store(std::max<uint64_t>(took_ns, 1), std::memory_order_relaxed);
  }

  /// Records a turn, and whether it moved frames. Any thread; of two concurrent yields one counts.
  void note_turn(bool moved) {
    if (took_ns_.load(std::memory_order_relaxed) == 0) [[likely]]
      return;
    const uint64_t took_ns = took_ns_.exchange(0, std::memory_order_relaxed);
    const uint32_t turns = turns_.load(std::memory_order_relaxed);
    uint32_t next = kLongestTurns;
    // A peer's burst may exceed a slice now and then, so one such yield does not prove a hog.
    if (took_ns < nobody_ns_ || (moved && took_ns >= kSliceNs))
      next = std::min(turns * 2, kLongestTurns);
    else if (moved || took_ns < kHogNs)
      next = std::max(turns / 2, kShortestTurns);
    turns_.store(next, std::memory_order_relaxed);
  }

 private:
  const uint64_t nobody_ns_;
  std::atomic<uint32_t> turns_{kLongestTurns};
  std::atomic<uint64_t> took_ns_{0};  ///< of a yield that no turn has followed yet; 0: none
};

}  // namespace faultline::glue
