// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace faultline {

/// Time in nanoseconds since an epoch that the driver chooses. Only differences have a meaning.
using TimeNs = uint64_t;
inline constexpr TimeNs kNever = ~TimeNs{0};

}  // namespace faultline
