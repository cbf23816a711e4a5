// SPDX-License-Identifier: BSD-3-Clause
// A core's failures: the newest ones in memory, in the status segment, and as log lines at level info.
#pragma once

#include <array>
#include <string>

#include "stack/base/time.hpp"
#include "stack/status/failure_ring.hpp"
#include "stack/status/segment_writer.hpp"
#include "stack/transport/shared/counters.hpp"

namespace faultline::glue {

/// Owner: the core's thread.
class FailureLog {
 public:
  /// Publishes in this segment from now on; nullptr: nowhere.
  void publish_in(status::SegmentWriter* segment, uint32_t core_index);
  void add(const status::FailureRecord& record);
  /// Adds a record for each reason for which packets were dropped since the last call and which explains a
  /// peer's failure: at most one in a second for each reason.
  void note_drops(const transport::CoreCounters& counters, TimeNs now);
  [[nodiscard]] const status::FailureRing& ring() const { return ring_; }

 private:
  struct Drops {
    uint64_t reported = 0;
    TimeNs next_ns = 0;
  };
  static constexpr TimeNs kDropIntervalNs = 1'000'000'000;

  void note_drops(Drops& drops, uint64_t count, status::FailureCause cause, TimeNs now);

  status::FailureRing ring_;
  status::SegmentWriter* segment_ = nullptr;
  status::RowIndex first_row_ = status::kNoRow;
  std::array<Drops, static_cast<size_t>(transport::DropReason::count_)> drops_{};
  Drops wrong_icrcs_;
};

}  // namespace faultline::glue
