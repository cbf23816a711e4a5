// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdlib>
#include <thread>

namespace faultline::test {

/// Ends a hang. No verdict depends on it: a test on a busy machine is slow, not wrong. As in tests/lib.sh.
inline std::chrono::seconds hang_limit() {
  constexpr long kSeconds = 300;
  const char* const given = std::getenv("FAULTLINE_HANG_SECONDS");
  return std::chrono::seconds(given != nullptr ? std::strtol(given, nullptr, 10) : kSeconds);
}
/// Whether a condition that other threads bring about holds at some moment before the limit. It may pass
/// again.
template <typename Condition>
bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + hang_limit();
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}
/// As alarm(2) and poll(2) take it.
inline unsigned hang_seconds() {
  return static_cast<unsigned>(hang_limit().count());
}
inline int hang_ms() {
  return static_cast<int>(std::chrono::milliseconds(hang_limit()).count());
}

}  // namespace faultline::test
