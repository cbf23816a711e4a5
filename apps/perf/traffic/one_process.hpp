// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "apps/perf/plan/options.hpp"

namespace faultline::perf {

/// Runs server and client in this process. Each has its own thread, CPU and device: the first and second of
/// the configuration. For devices that two processes cannot connect, such as those of kind `ring`. Returns
/// the exit status.
[[nodiscard]] int run_both(const Options& options);

}  // namespace faultline::perf
