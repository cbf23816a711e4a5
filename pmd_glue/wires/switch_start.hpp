// SPDX-License-Identifier: BSD-3-Clause
// Starts a wire's switch: the first process on a wire does.
#pragma once

#include <string>

#include "pmd_glue/wires/switch_place.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::glue {

/// Returns a connection to the wire's switch; starts the switch if none runs (`started`), unless the wire
/// needs one with an uplink, which only the user can start. Returns an invalid descriptor with one line in
/// `error` on failure. errno is ETIMEDOUT if another process blocked it until `deadline`.
[[nodiscard]] UniqueFd reach_switch(const std::string& wire, const SwitchPlace& place, SteadyTime deadline,
                                    bool& started, std::string& error);

/// Returns the last line in the log of a switch that was started so.
[[nodiscard]] std::string last_log_line(const SwitchPlace& place);

}  // namespace faultline::glue
