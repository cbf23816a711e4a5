// SPDX-License-Identifier: BSD-3-Clause
// Two kinds of memory, side by side.
#pragma once

#include <array>

#include "apps/perf/exchange/exchange.hpp"
#include "apps/perf/plan/plan.hpp"
#include "apps/perf/plan/resources.hpp"

namespace faultline::perf {

/// Both plans between the same two processes, a connection each, `seconds` of each in short turns, A B B A:
/// what drifts, and where a host has its CPUs, meets both alike. The first one's result tells how it did
/// beside the second's.
[[nodiscard]] std::array<Result, 2> run_in_turns(Exchange& exchange, const Device& device, const Plan& first,
                                                 const Plan& second, double seconds);

}  // namespace faultline::perf
