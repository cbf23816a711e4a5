// SPDX-License-Identifier: BSD-3-Clause
// Failures of QPs as log lines at level info, and reasons of refused calls at level debug, with a rate limit.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "stack/base/time.hpp"
#include "stack/base/token_bucket.hpp"
#include "stack/status/failure.hpp"

namespace faultline::glue {

/// Limits the rate of log lines. Any thread.
class ReasonLimit {
 public:
  static constexpr uint32_t kLinesPerSecond = 20;

  /// Returns the number of lines suppressed since the last admitted one, or nullopt if this line is
  /// suppressed too.
  [[nodiscard]] std::optional<uint64_t> admit(TimeNs now);
  /// As admit(), and suppresses a failure of the same cause and peer as the last one within a second: a peer
  /// that dies fails all its QPs.
  [[nodiscard]] std::optional<uint64_t> admit_failure(const status::FailureRecord& record, TimeNs now);

 private:
  std::mutex mutex_;
  TokenBucket lines_{kLinesPerSecond, kLinesPerSecond};
  static constexpr TimeNs kSameNs = 1'000'000'000;

  uint64_t held_back_ = 0;
  status::FailureCause last_cause_ = status::FailureCause::none;
  std::array<uint8_t, 16> last_peer_{};
  TimeNs last_ns_ = 0;
};

/// wants_reasons() returns whether the log takes level debug; log_reason() writes "faultline: DEVICE: LINE".
/// Neither throws.
[[nodiscard]] bool wants_reasons();
/// The same for failures of QPs, at level info.
[[nodiscard]] bool wants_failures();
void log_failure(std::string_view device, const status::FailureRecord& record, TimeNs now) noexcept;
void log_reason(std::string_view device, std::string_view line, TimeNs now) noexcept;

/// Returns $FAULTLINE_LOG if it is a log level. Returns nullopt if it is unset or invalid; an invalid value
/// also sets `complaint` to one line.
[[nodiscard]] std::optional<std::string> log_level_of_environment(std::string& complaint);
[[nodiscard]] std::optional<std::string> parse_log_level(const char* text, std::string& complaint);

}  // namespace faultline::glue
