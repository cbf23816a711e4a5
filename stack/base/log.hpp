// SPDX-License-Identifier: BSD-3-Clause
// The library's only logger. It writes to stderr, since stdout belongs to the program.
#pragma once

#include <spdlog/logger.h>

namespace faultline {

/// Returns the logger. Each line begins with "faultline: ". The level is warn until `[log] level` is read
/// from the configuration.
[[nodiscard]] spdlog::logger& log();

}  // namespace faultline
