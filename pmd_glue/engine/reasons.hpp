// SPDX-License-Identifier: BSD-3-Clause
// Why something failed, as lines of the log at level debug; and how many of them.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "stack/base/token_bucket.hpp"
#include "stack/transport/core/core.hpp"

namespace faultline::glue {

/// The line for a QP that fails.
[[nodiscard]] std::string text_of(const transport::QpFailure& failure);
/// "198.18.0.1" or "fe80::1".
[[nodiscard]] std::string text_of(const wire::Gid& gid);

/// Holds lines back that come too often. Any thread.
class ReasonLimit {
 public:
  static constexpr uint32_t kLinesPerSecond = 20;

  /// Nothing where there have been too many lately; else how many were held back before this one.
  [[nodiscard]] std::optional<uint64_t> admit(TimeNs now);

 private:
  std::mutex mutex_;
  TokenBucket lines_{kLinesPerSecond, kLinesPerSecond};
  uint64_t held_back_ = 0;
};

/// Whether the log takes level debug, and a line of it: "faultline: DEVICE: LINE". Throws nothing.
[[nodiscard]] bool wants_reasons();
void log_reason(std::string_view device, std::string_view line, TimeNs now) noexcept;

/// $FAULTLINE_LOG where it is one of the levels. Nothing where it is not set, or is none: then `complaint`
/// has a line.
[[nodiscard]] std::optional<std::string> log_level_of_environment(std::string& complaint);
[[nodiscard]] std::optional<std::string> parse_log_level(const char* text, std::string& complaint);

}  // namespace faultline::glue
