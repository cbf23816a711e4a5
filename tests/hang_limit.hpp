// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdlib>

namespace faultline::test {

/// Ends a hang. No verdict depends on it: a test on a busy machine is slow, not wrong. As in tests/lib.sh.
inline std::chrono::seconds hang_limit() {
  constexpr long kSeconds = 300;
  const char* const given = std::getenv("FAULTLINE_HANG_SECONDS");
  return std::chrono::seconds(given != nullptr ? std::strtol(given, nullptr, 10) : kSeconds);
}
/// As alarm(2) and poll(2) take it.
inline unsigned hang_seconds() {
  return static_cast<unsigned>(hang_limit().count());
}
inline int hang_ms() {
  return static_cast<int>(std::chrono::milliseconds(hang_limit()).count());
}

}  // namespace faultline::test
