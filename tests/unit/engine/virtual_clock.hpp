// SPDX-License-Identifier: BSD-3-Clause
// Virtual time. The linker's --wrap=clock_gettime (meson.build) directs the product's clock here, so the
// product needs no seam for it. CLOCK_MONOTONIC stands still until a test advances it; other clocks are real.
#pragma once

#include "stack/base/time.hpp"

namespace faultline::glue::test {

inline constexpr TimeNs kMicrosecond = 1'000;
inline constexpr TimeNs kMillisecond = 1'000'000;
inline constexpr TimeNs kSecond = 1'000'000'000;

class VirtualClock {
 public:
  /// Never 0. Any thread.
  [[nodiscard]] static TimeNs now();
  static void advance(TimeNs by_ns);
  /// Advances to `time`, or not at all if it has passed.
  static void advance_to(TimeNs time);
};

}  // namespace faultline::glue::test
