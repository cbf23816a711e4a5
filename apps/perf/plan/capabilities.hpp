// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "apps/perf/plan/options.hpp"

namespace faultline::perf {

/// Prints what on-demand paging does for each transport and operation, as the device itself says, and why
/// where it does nothing. Without a configuration, of a device as any port has it. 0, or 1 where the device
/// does not answer.
[[nodiscard]] int print_capabilities(const Options& options);

}  // namespace faultline::perf
