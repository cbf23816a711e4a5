// SPDX-License-Identifier: BSD-3-Clause
// The library's one logger. It writes to stderr: stdout is the program's own.
#pragma once

#include <spdlog/logger.h>

namespace faultline {

/// Lines read "faultline: ...". Its level is warn until the configuration's `[log] level` is known.
[[nodiscard]] spdlog::logger& log();

}  // namespace faultline
