// SPDX-License-Identifier: BSD-3-Clause
// Counters in Prometheus' text format, by its conventions on names and units.
// https://prometheus.io/docs/instrumenting/exposition_formats, .../practices/naming
#pragma once

#include <span>
#include <string>

#include "apps/faultline/export/running_programs.hpp"

namespace faultline::cli {

/// Returns one family of metrics for each counter, with the labels device, pid and program. Times are in
/// seconds. The latencies of page faults are one histogram, without a sum: the label kind has their kinds.
[[nodiscard]] std::string prometheus_text(std::span<const DeviceSamples> devices);

}  // namespace faultline::cli
