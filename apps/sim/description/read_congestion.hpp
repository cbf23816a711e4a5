// SPDX-License-Identifier: BSD-3-Clause
// Reads `[congestion]`, with the keys of transport.congestion in faultline.toml(5).
#pragma once

#include "stack/toml/checked_table.hpp"
#include "stack/transport/congestion/rate_control.hpp"

namespace faultline::fabric {

/// `line_bytes_per_s` is the rate of a host's link, at which a DCQCN flow is no longer limited unless the
/// file states another. Throws DescriptionError.
[[nodiscard]] transport::CongestionConfig read_congestion(CheckedTable& root, uint64_t line_bytes_per_s);

}  // namespace faultline::fabric
