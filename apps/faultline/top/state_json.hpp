// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nlohmann/json.hpp>

#include "apps/faultline/top/device_state.hpp"

namespace faultline::cli {

/// Returns the whole state. Names of keys end in their unit; docs/seeing/seeing.md describes them.
[[nodiscard]] nlohmann::ordered_json json_of(const TopState& state);

}  // namespace faultline::cli
