// SPDX-License-Identifier: BSD-3-Clause
// The journal of decisions: JSON, one object a line. It has no times, process IDs and QPNs, so that equal
// runs have equal journals.
#pragma once

#include <string>
#include <string_view>

#include "stack/trouble/scenario.hpp"

namespace faultline::trouble {

/// The journal's first line.
[[nodiscard]] std::string header_line(const Scenario& scenario, std::string_view program);
/// `action_text` is JSON. No newline at the end, as above.
[[nodiscard]] std::string decision_line(std::string_view rule, std::string_view event,
                                        std::string_view object, uint64_t n, std::string_view action_text);
/// Reads a whole journal: its decisions become Scenario::exact. Returns "" or what is wrong, with the line's
/// number.
[[nodiscard]] std::string read_journal(std::string_view text, Scenario& scenario);

}  // namespace faultline::trouble
