// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/reasons.hpp"

#include <algorithm>
#include <cstdlib>
#include <exception>

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include "pmd_glue/config/config.hpp"
#include "stack/base/log.hpp"
#include "stack/base/process/process_local.hpp"
#include "stack/status/failure_text.hpp"

namespace faultline::glue {
namespace {

constinit ProcessLocal<ReasonLimit> limit;

}  // namespace

std::optional<uint64_t> ReasonLimit::admit(TimeNs now) {
  const std::lock_guard guard(mutex_);
  if (!lines_.take(now)) {
    ++held_back_;
    return std::nullopt;
  }
  const uint64_t before = held_back_;
  held_back_ = 0;
  return before;
}

std::optional<uint64_t> ReasonLimit::admit_failure(const status::FailureRecord& record, TimeNs now) {
  {
    const std::lock_guard guard(mutex_);
    const bool is_same =
        record.cause == last_cause_ && record.peer_gid == last_peer_ && now < last_ns_ + kSameNs;
    if (is_same) {
      ++held_back_;
      return std::nullopt;
    }
    last_cause_ = record.cause;
    last_peer_ = record.peer_gid;
    last_ns_ = now;
  }
  return admit(now);
}

bool wants_reasons() {
  return log().should_log(spdlog::level::debug);
}

bool wants_failures() {
  return log().should_log(spdlog::level::info);
}

void log_failure(std::string_view device, const status::FailureRecord& record, TimeNs now) noexcept {
  try {
    const auto before = limit.get().admit_failure(record, now);
    if (!before) return;
    if (*before != 0) log().info("{} lines like the next one were left out", *before);
    log().info("{}: {}", device, status::text_of(record));
  } catch (const std::exception&) {
    // Out of memory: the line is dropped, since the caller's work matters more.
  }
}

void log_reason(std::string_view device, std::string_view line, TimeNs now) noexcept {
  try {
    const auto before = limit.get().admit(now);
    if (!before) return;
    if (*before != 0) log().debug("{} lines like the next one were left out", *before);
    log().debug("{}: {}", device, line);
  } catch (const std::exception&) {
    // Out of memory: the line is dropped, since the caller's work matters more.
  }
}

std::optional<std::string> parse_log_level(const char* text, std::string& complaint) {
  if (text == nullptr) return std::nullopt;
  const auto levels = log_levels();
  if (std::find(levels.begin(), levels.end(), text) != levels.end()) return text;
  complaint = fmt::format("faultline: FAULTLINE_LOG: \"{}\" is not one of {}", text, fmt::join(levels, ", "));
  return std::nullopt;
}

std::optional<std::string> log_level_of_environment(std::string& complaint) {
  return parse_log_level(secure_getenv("FAULTLINE_LOG"), complaint);
}

}  // namespace faultline::glue
