// SPDX-License-Identifier: BSD-3-Clause
// Comparison of two kinds of memory in alternating turns.
#pragma once

#include <array>

#include "apps/perf/exchange/exchange.hpp"
#include "apps/perf/plan/plan.hpp"
#include "apps/perf/plan/resources.hpp"

namespace faultline::perf {

/// Runs both plans between the same two processes, on one connection each, `seconds` of each in short turns A
/// B B A. Drift and CPU placement of the host then affect both alike. The first result holds the ratio to the
/// second.
[[nodiscard]] std::array<Result, 2> run_in_turns(Exchange& exchange, const PerfDevice& device,
                                                 const Plan& first, const Plan& second, double seconds);

}  // namespace faultline::perf
