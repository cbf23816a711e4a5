// SPDX-License-Identifier: BSD-3-Clause
// The newest failures of a core. Owner: the core's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "stack/status/failure.hpp"

namespace faultline::status {

class FailureRing {
 public:
  static constexpr size_t kRecords = 64;

  void add(const FailureRecord& record) { records_[count_++ % kRecords] = record; }
  /// Number of failures so far. The newest has the number count() - 1.
  [[nodiscard]] uint64_t count() const { return count_; }
  /// Requires that the failure is one of the newest kRecords.
  [[nodiscard]] const FailureRecord& at(uint64_t number) const { return records_[number % kRecords]; }
  /// Returns the newest failure of a QP since a time, or nullptr.
  [[nodiscard]] const FailureRecord* newest_of(uint32_t qpn, uint64_t since_ns) const {
    for (uint64_t number = count_; number != 0 && number + kRecords > count_; --number) {
      const FailureRecord& record = at(number - 1);
      if (record.qpn == qpn && record.time_ns >= since_ns) return &record;
    }
    return nullptr;
  }

 private:
  std::array<FailureRecord, kRecords> records_{};
  uint64_t count_ = 0;
};

}  // namespace faultline::status
