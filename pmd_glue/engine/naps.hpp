// SPDX-License-Identifier: BSD-3-Clause
// How long a thread sleeps at a time that looks after a port which cannot tell of frames. A nap is what the
// first frame waits for; its end costs what a switch to the thread costs, some 25 us on a virtual machine,
// which is more than one per cent of a CPU at two milliseconds. So the longer nothing has come, the longer
// the nap.
#pragma once

#include "stack/transport/shared/types.hpp"

namespace faultline::glue {

/// `idle_ns` is how long no frame has come, `first_ns` the nap of the first while.
[[nodiscard]] constexpr TimeNs nap_after(TimeNs idle_ns, TimeNs first_ns) {
  if (idle_ns < 100'000'000) return first_ns;
  return idle_ns < 500'000'000 ? 2'000'000 : 5'000'000;
}

}  // namespace faultline::glue
