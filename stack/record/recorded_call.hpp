// SPDX-License-Identifier: BSD-3-Clause
// A control call of verbs, which is recorded when it returns.
#pragma once

#include "stack/base/clock.hpp"
#include "stack/record/ring_writer.hpp"

namespace faultline::record {

/// Lives as long as the call. Any thread.
class RecordedCall {
 public:
  /// `writer`: nullptr if nothing is recorded; then this object does nothing.
  RecordedCall(ControlWriter* writer, ControlCall call) : writer_(writer) {
    if (writer_ == nullptr) return;
    row.call = call;
    begin_ns_ = monotonic_ns();
  }
  ~RecordedCall() {
    if (writer_ == nullptr) return;
    row.time_ns = monotonic_ns();
    row.duration_ns = row.time_ns - begin_ns_;
    writer_->add(row);
  }
  RecordedCall(const RecordedCall&) = delete;
  RecordedCall& operator=(const RecordedCall&) = delete;

  /// Notes the result, an errno or 0, and returns it.
  int end(int error) {
    row.error = error;
    return error;
  }

  ControlRow row;  ///< what the call is about; time and duration are set at its return

 private:
  ControlWriter* const writer_;
  uint64_t begin_ns_ = 0;
};

}  // namespace faultline::record
