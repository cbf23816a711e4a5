// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/status/core_publisher.hpp"

#include <algorithm>
#include <optional>
#include <span>

namespace faultline::glue {

CorePublisher::CorePublisher(transport::Core& core, uint32_t core_index)
    : core_(core), core_index_(core_index) {}

void CorePublisher::publish_in(status::SegmentWriter* segment) {
  segment_ = segment;
  failures_.publish_in(segment, core_index_);
  due_ns_.store(segment != nullptr ? 0 : kNeverDue, std::memory_order_relaxed);
}

void CorePublisher::publish(TimeNs now) {
  if (segment_ == nullptr || segment_->is_of_parent_process()) {
    due_ns_.store(kNeverDue, std::memory_order_relaxed);
    return;
  }
  const bool was_noted = due_ns_.load(std::memory_order_relaxed) == 0;
  const bool changed = publish_counters(now) || was_noted;
  due_ns_.store(changed ? now + kIntervalNs : kAtNextMove, std::memory_order_relaxed);
  publish_qps(now);
}

bool CorePublisher::publish_counters(TimeNs now) {
  const transport::CoreCounters counters = core_.counters();
  transport::flatten(counters, values_);
  if (values_ == before_) return false;
  failures_.note_drops(counters, now);
  before_ = values_;
  segment_->write_core_counters(core_index_, values_);
  return true;
}

void CorePublisher::publish_qps(TimeNs now) {
  std::array<transport::QpSnapshot, 32> snapshots;
  const size_t most = std::max(kLeastQps, core_.qp_count() / kRounds);
  for (size_t done = 0; done < std::min(most, core_.qp_count());) {
    const size_t wanted = std::min(snapshots.size(), core_.qp_count() - done);
    const size_t filled = core_.snapshot_qps(std::span(snapshots).first(wanted), now);
    if (filled == 0) return;
    done += filled;
    for (const transport::QpSnapshot& snapshot : std::span(snapshots).first(filled)) {
      status::RowCell<status::QpRow>& cell = segment_->cell<status::QpRow>(snapshot.row);
      std::optional<status::QpRow> row = cell.read();
      if (!row) continue;
      row->live = snapshot.live;
      cell.write(*row);
    }
  }
}

}  // namespace faultline::glue
