// SPDX-License-Identifier: BSD-3-Clause
// Finds out whether a polling thread shares its CPU with a thread that computes or spins. The scheduler then
// takes the CPU away for a whole slice, some milliseconds, in which frames wait. A thread that sleeps between
// frames is woken at once instead: it keeps its claim to pre-empt (sched(7), "lag" of EEVDF). Pure: times
// are arguments.
#pragma once

#include <algorithm>

#include "stack/base/time.hpp"

namespace faultline::glue {

class CpuContention {
 public:
  /// A round of polling that took so long has lost the CPU: turns take microseconds.
  static constexpr TimeNs kLostNs = 1'000'000;
  /// The thread sleeps between frames for so long, and then polls on again to find out. A loss costs some
  /// milliseconds, so the time doubles with each loss that follows soon after.
  static constexpr TimeNs kShortestNs = 100'000'000;
  static constexpr TimeNs kLongestNs = 3'200'000'000;

  /// Records a round of polling, with a yield at its end.
  void note_round(TimeNs began, TimeNs ended) {
    if (ended - began < kLostNs) return;
    const bool is_soon = lost_ != 0 && ended < lost_ + 2 * period_;
    period_ = is_soon ? std::min(2 * period_, kLongestNs) : kShortestNs;
    lost_ = ended;
    until_ = ended + period_;
  }
  /// Records a wake-up by frames; `is_stream` is true if it found several. A stream of frames gains more by
  /// polling than it loses: then the thread polls on, until the next loss.
  void note_wake(bool is_stream) {
    score_ = is_stream ? score_ + kStreamStep : std::max(score_ - 1, 0);
    if (score_ < kStream) return;
    score_ = 0;
    until_ = 0;
  }
  [[nodiscard]] bool is_contended(TimeNs now) const { return now < until_; }

 private:
  static constexpr int kStreamStep = 2;
  static constexpr int kStream = 16;

  int score_ = 0;
  TimeNs lost_ = 0;   ///< end of the last round that was lost
  TimeNs until_ = 0;  ///< end of the contention
  TimeNs period_ = kShortestNs;
};

}  // namespace faultline::glue
