// SPDX-License-Identifier: BSD-3-Clause
// Reasons of failures as log lines at level debug, with a rate limit.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "pmd_glue/link/address_table.hpp"
#include "stack/base/token_bucket.hpp"
#include "stack/transport/core/core.hpp"

namespace faultline::glue {

/// Returns the log line for a QP failure.
[[nodiscard]] std::string text_of(const transport::QpFailure& failure);

/// Limits the rate of log lines. Any thread.
class ReasonLimit {
 public:
  static constexpr uint32_t kLinesPerSecond = 20;

  /// Returns the number of lines suppressed since the last admitted one, or nullopt if this line is
  /// suppressed too.
  [[nodiscard]] std::optional<uint64_t> admit(TimeNs now);

 private:
  std::mutex mutex_;
  TokenBucket lines_{kLinesPerSecond, kLinesPerSecond};
  uint64_t held_back_ = 0;
};

/// wants_reasons() returns whether the log takes level debug; log_reason() writes "faultline: DEVICE: LINE".
/// Neither throws.
[[nodiscard]] bool wants_reasons();
void log_reason(std::string_view device, std::string_view line, TimeNs now) noexcept;

/// Returns $FAULTLINE_LOG if it is a log level. Returns nullopt if it is unset or invalid; an invalid value
/// also sets `complaint` to one line.
[[nodiscard]] std::optional<std::string> log_level_of_environment(std::string& complaint);
[[nodiscard]] std::optional<std::string> parse_log_level(const char* text, std::string& complaint);

}  // namespace faultline::glue
