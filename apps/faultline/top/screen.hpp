// SPDX-License-Identifier: BSD-3-Clause
// The interactive screen of `faultline top`.
#pragma once

#include "apps/faultline/top/device_state.hpp"

namespace faultline::cli {

/// Shows the state and refreshes it each `interval_ms`, until the user quits. Requires a terminal.
void show_screen(const Choice& choice, unsigned interval_ms);

}  // namespace faultline::cli
