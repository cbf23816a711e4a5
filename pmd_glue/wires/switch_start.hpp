// SPDX-License-Identifier: BSD-3-Clause
// A wire's switch where it is needed: the first process of a wire starts it.
#pragma once

#include <string>

#include "pmd_glue/wires/switch_place.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::glue {

/// A connection to the wire's switch, which is started where there is none (`started`). Not valid, with one
/// line in `error`, where that cannot be had; errno is then ETIMEDOUT if others were in the way until
/// `deadline`.
[[nodiscard]] UniqueFd reach_switch(const std::string& wire, const SwitchPlace& place, SteadyTime deadline,
                                    bool& started, std::string& error);

/// What a switch that was started so said last.
[[nodiscard]] std::string last_log_line(const SwitchPlace& place);

}  // namespace faultline::glue
