// SPDX-License-Identifier: BSD-3-Clause
// The keys of a `do` table beside the one that names the action: durations, counts, rates.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "stack/trouble/scenario.hpp"

namespace faultline::trouble {

/// True if some action takes this key.
[[nodiscard]] bool is_option(std::string_view key);

/// Reads the options of an action whose kind is known. Returns "" or what is wrong with them. An option may
/// change the kind: a corrupt packet with a right ICRC is another action.
[[nodiscard]] std::string read_options(const nlohmann::ordered_json& table, Action& action);

}  // namespace faultline::trouble
