// SPDX-License-Identifier: BSD-3-Clause
// The `do` table of a rule, by the names that verbs programs use (errno(3), ibv_poll_cq(3),
// ibv_get_async_event(3)), and what a real device may do.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "stack/trouble/scenario.hpp"

namespace faultline::trouble {

/// Reads a `do` table. Returns "" or what is wrong with it. `action.text` is the table.
[[nodiscard]] std::string read_action(const nlohmann::ordered_json& table, Action& action);

/// Makes the status of a send one of a receive. Returns "" or what is wrong with it.
[[nodiscard]] std::string make_of_receive(Action& action);

/// The same of a decision at an exact place, if that is a receive.
[[nodiscard]] std::string fit_to_event(Exact& exact);

/// Returns why no real device does this; "": some do.
[[nodiscard]] std::string why_illegal(const Action& action, const Condition& when);

}  // namespace faultline::trouble
