// SPDX-License-Identifier: BSD-3-Clause
// Idle backoff: the sleep interval for ports without an RX interrupt. The first frame waits until the
// interval ends. Each wake-up costs a context switch, some 25 us on a virtual machine. At an interval of two
// milliseconds that is more than one per cent of a CPU. So the interval grows with the time since the last
// frame.
#pragma once

#include <algorithm>

#include "stack/transport/shared/types.hpp"

namespace faultline::glue {

/// `idle_ns` is the time since the last frame, `first_ns` the initial interval.
[[nodiscard]] constexpr TimeNs idle_backoff_ns(TimeNs idle_ns, TimeNs first_ns) {
  if (idle_ns < 100'000'000) return first_ns;
  return idle_ns < 500'000'000 ? 2'000'000 : 5'000'000;
}

/// The nap of the progress thread beside a program that drives its engine. Such a program may stop at any
/// time, for example to spin on its own memory. One for which the thread had work a moment ago is likely to,
/// so the nap grows with the time since then.
[[nodiscard]] constexpr TimeNs driven_nap_ns(TimeNs idle_ns) {
  constexpr TimeNs kShortestNs = 50'000;
  constexpr TimeNs kLongestNs = 2'000'000;
  return std::clamp(idle_ns / 8, kShortestNs, kLongestNs);
}

/// The pause of a call that waits for another process, such as a neighbour's answer. A quick answer is seen
/// at once. After that a thread that looks at the first rate takes the CPU from the process that it waits
/// for.
[[nodiscard]] constexpr TimeNs look_pause_ns(TimeNs waited_ns) {
  return driven_nap_ns(waited_ns);
}

}  // namespace faultline::glue
