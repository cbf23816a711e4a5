// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

#include "apps/perf/exchange/exchange.hpp"
#include "apps/perf/plan/options.hpp"
#include "apps/perf/plan/resources.hpp"

namespace faultline::perf {

/// What a client does with its connection and its device. Returns the exit status.
using Measure = std::function<int(Exchange&, const PerfDevice&)>;

/// Runs server and client in this process. Each has its own thread, CPU and device: the first and second of
/// the configuration. For devices that two processes cannot connect, such as those of kind `ring`. Returns
/// the exit status.
[[nodiscard]] int run_both(const Options& options, const Measure& measure);

}  // namespace faultline::perf
