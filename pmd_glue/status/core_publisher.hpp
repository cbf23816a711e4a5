// SPDX-License-Identifier: BSD-3-Clause
// Publishes a core's counters and QPs in the device's status segment, in the core's own turns: at the first
// turn that moves frames, then at intervals until nothing has changed. An idle core neither publishes nor
// wakes up to do so.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "pmd_glue/status/failure_log.hpp"
#include "stack/status/segment_writer.hpp"
#include "stack/transport/core/core.hpp"

namespace faultline::glue {

class CorePublisher {
 public:
  static constexpr TimeNs kIntervalNs = 100'000'000;

  CorePublisher(transport::Core& core, uint32_t core_index);

  /// Publishes in this segment from now on; nullptr: nowhere. Owner thread.
  void publish_in(status::SegmentWriter* segment);

  /// True if publish() has to be called in this turn.
  [[nodiscard]] bool is_due(bool moved, TimeNs now) const {
    const TimeNs due = due_ns_.load(std::memory_order_relaxed);
    return now >= due || (moved && due == kAtNextMove);
  }
  void publish(TimeNs now);
  /// Time of the turn that publishes next, if no frame moves before.
  [[nodiscard]] TimeNs next_deadline() const { return due_ns_.load(std::memory_order_relaxed); }

  /// Failures of the core. Owner thread.
  [[nodiscard]] FailureLog& failures() { return failures_; }

  /// The program has changed a QP. Any thread.
  void note_change() {
    if (due_ns_.load(std::memory_order_relaxed) == kAtNextMove) due_ns_.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr TimeNs kNeverDue = kNever;
  static constexpr TimeNs kAtNextMove = kNever - 1;
  /// QPs that a call publishes: at least so many, and more if all would take longer than kRounds calls.
  static constexpr size_t kLeastQps = 256;
  static constexpr size_t kRounds = 10;

  /// Returns whether one has changed.
  bool publish_counters(TimeNs now);
  void publish_qps(TimeNs now);

  transport::Core& core_;
  const uint32_t core_index_;
  status::SegmentWriter* segment_ = nullptr;
  FailureLog failures_;
  std::atomic<TimeNs> due_ns_{kNeverDue};
  std::array<uint64_t, transport::kFlatCounters> values_{};
  std::array<uint64_t, transport::kFlatCounters> before_{};
};

}  // namespace faultline::glue
