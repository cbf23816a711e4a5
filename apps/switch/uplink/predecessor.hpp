// SPDX-License-Identifier: BSD-3-Clause
// How long a switch waits for what another process has: mostly the switch before it, which ends.
#pragma once

#include <chrono>

namespace faultline::switching {

/// For each of a UDP port, a VFIO group and a tap.
inline constexpr std::chrono::seconds kPredecessorPatience{5};
/// Between two looks at it.
inline constexpr std::chrono::milliseconds kPredecessorPause{10};

}  // namespace faultline::switching
