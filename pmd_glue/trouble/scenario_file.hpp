// SPDX-License-Identifier: BSD-3-Clause
// Reads a scenario from TOML. Every key is checked.
#pragma once

#include <string>

#include "stack/trouble/scenario.hpp"

namespace faultline::glue {

/// Reads a scenario file. Throws ConfigError with one line that names file, line, key and mistake.
[[nodiscard]] trouble::Scenario load_scenario(const std::string& path);
/// As load_scenario(), from text; `path` is for messages.
[[nodiscard]] trouble::Scenario parse_scenario(const std::string& text, const std::string& path);

}  // namespace faultline::glue
