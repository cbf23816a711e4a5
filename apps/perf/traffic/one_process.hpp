// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "apps/perf/plan/options.hpp"

namespace faultline::perf {

/// Server and client in this process, each with a thread, a CPU and a device of its own: the configuration's
/// first and second. For devices that two processes cannot join, such as those of a ring. The exit status.
[[nodiscard]] int run_both(const Options& options);

}  // namespace faultline::perf
