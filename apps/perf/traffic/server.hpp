// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "apps/perf/exchange/exchange.hpp"
#include "apps/perf/plan/resources.hpp"

namespace faultline::perf {

/// Serves one client until it sends "bye" or disconnects.
void serve_client(Exchange& exchange, const PerfDevice& device);

}  // namespace faultline::perf
