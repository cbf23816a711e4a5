// SPDX-License-Identifier: BSD-3-Clause
// The exit status that all programs share.
#pragma once

namespace faultline {

/// A user's mistake: an unknown option, a wrong value, a file that cannot be read.
inline constexpr int kUsageExit = 2;

}  // namespace faultline
