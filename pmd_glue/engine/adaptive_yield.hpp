// SPDX-License-Identifier: BSD-3-Clause
// Adaptive yield: the number of idle turns after which a polling program calls sched_yield(). If a peer or
// the switch waits for this CPU, spinning delays the awaited frame. If no thread waits, sched_yield() is a
// system call for nothing. If another thread keeps the CPU for long, the yield costs milliseconds. So the
// duration of the last yield, and the frames that waited after it, decide when the next one is due.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace faultline::glue {

/// The frames of a turn.
enum class TurnWork : uint8_t { none, few_frames, many_frames };

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
  // A burst of READ responses may take more than a slice, and leaves many frames. Such yields prove nothing
  // by themselves. But while a hog has the CPU, a peer on another CPU may leave as many, so this number of
  // them in succession makes the next yield later.
  static constexpr uint32_t kUndecidedYields = 8;

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

  /// Records a turn's frames. Any thread; of two concurrent yields one counts.
  void note_turn(TurnWork work) {
    if (took_ns_.load(std::memory_order_relaxed) == 0) [[likely]]
      return;
    const uint64_t took_ns = took_ns_.exchange(0, std::memory_order_relaxed);
    const uint32_t turns = turns_.load(std::memory_order_relaxed);
    turns_.store(turns_after(took_ns, work, turns), std::memory_order_relaxed);
  }

 private:
  uint32_t turns_after(uint64_t took_ns, TurnWork work, uint32_t turns) {
    const uint32_t undecided = undecided_yields_.exchange(0, std::memory_order_relaxed);
    const uint32_t later = std::min(turns * 2, kLongestTurns);
    if (took_ns < nobody_ns_) return later;
    if (work != TurnWork::none && took_ns >= kSliceNs) {
      if (work == TurnWork::few_frames || undecided + 1 == kUndecidedYields) return later;
      undecided_yields_.store(undecided + 1, std::memory_order_relaxed);
      return turns;
    }
    if (work != TurnWork::none || took_ns < kHogNs) return std::max(turns / 2, kShortestTurns);
    return kLongestTurns;
  }

  const uint64_t nobody_ns_;
  std::atomic<uint32_t> turns_{kLongestTurns};
  std::atomic<uint32_t> undecided_yields_{0};  ///< long ones in succession that left many frames
  std::atomic<uint64_t> took_ns_{0};           ///< of a yield that no turn has followed yet; 0: none
};

}  // namespace faultline::glue
