// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/status/failure_log.hpp"

namespace faultline::glue {
namespace {

using status::FailureCause;
using transport::DropReason;

/// Returns `none` for packets that are dropped in normal operation too: duplicates, and packets behind a
/// loss.
FailureCause cause_of(DropReason reason) {
  switch (reason) {
    case DropReason::unknown_qpn:
      return FailureCause::dropped_unknown_qpn;
    case DropReason::wrong_service:
      return FailureCause::dropped_wrong_service;
    case DropReason::qp_state:
      return FailureCause::dropped_qp_state;
    case DropReason::pkey:
      return FailureCause::dropped_pkey;
    case DropReason::qkey:
      return FailureCause::dropped_qkey;
    case DropReason::source_address:
      return FailureCause::dropped_source;
    case DropReason::destination_address:
      return FailureCause::dropped_destination;
    case DropReason::path_mtu:
      return FailureCause::dropped_mtu;
    case DropReason::payload_rule:
      return FailureCause::dropped_length;
    case DropReason::ud_too_long:
      return FailureCause::dropped_too_long;
    case DropReason::access:
      return FailureCause::dropped_access;
    case DropReason::stale_request:
      return FailureCause::dropped_stale;
    case DropReason::no_receive_wqe:
      return FailureCause::dropped_no_receive;
    default:
      return FailureCause::none;
  }
}

}  // namespace

void FailureLog::publish_in(status::SegmentWriter* segment, uint32_t core_index) {
  segment_ = segment;
  first_row_ = status::FailureRing::kRecords * core_index;
  // The rows of the first core are added first, so each core finds its own.
  if (segment_ == nullptr) return;
  for (size_t i = 0; i < status::FailureRing::kRecords; ++i)
    if (segment_->add(status::FailureRecord{}) == status::kNoRow) {
      segment_ = nullptr;
      return;
    }
}

void FailureLog::add(const status::FailureRecord& record) {
  ring_.add(record);
  if (segment_ == nullptr || segment_->is_of_parent_process()) return;
  const auto place = static_cast<status::RowIndex>((ring_.count() - 1) % status::FailureRing::kRecords);
  segment_->cell<status::FailureRecord>(first_row_ + place).write(record);
}

void FailureLog::note_drops(const transport::CoreCounters& counters, TimeNs now) {
  for (size_t i = 0; i < drops_.size(); ++i)
    if (const FailureCause cause = cause_of(static_cast<DropReason>(i)); cause != FailureCause::none)
      note_drops(drops_[i], counters.drops[i], cause, now);
  note_drops(wrong_icrcs_, counters.parse_errors[static_cast<size_t>(wire::ParseError::icrc)],
             FailureCause::dropped_icrc, now);
}

void FailureLog::note_drops(Drops& drops, uint64_t count, FailureCause cause, TimeNs now) {
  if (count == drops.reported || now < drops.next_ns) return;
  status::FailureRecord record;
  record.time_ns = now;
  record.count = count - drops.reported;
  record.cause = cause;
  add(record);
  drops.reported = count;
  drops.next_ns = now + kDropIntervalNs;
}

}  // namespace faultline::glue
