// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "apps/perf/plan/options.hpp"

namespace faultline::perf {

/// Prints the on-demand paging capabilities that the device reports for each transport and operation, and the
/// reason if a combination is not supported. Without a configuration, queries a default device. Returns 0, or
/// 1 if ibv_query_device_ex fails.
[[nodiscard]] int print_capabilities(const Options& options);

}  // namespace faultline::perf
