// SPDX-License-Identifier: BSD-3-Clause
// Reads the tables of the file that describe hosts, switches, links and their failures.
#pragma once

#include <vector>

#include "apps/sim/description/description.hpp"
#include "stack/toml/checked_table.hpp"

namespace faultline::fabric {

/// Reads `[topology]`, and with kind "list" also `[[link]]`. Throws DescriptionError.
[[nodiscard]] Topology read_topology(CheckedTable& root);

/// Reads `[[failure]]`. Throws DescriptionError.
[[nodiscard]] std::vector<Failure> read_failures(CheckedTable& root, const Topology& topology);

}  // namespace faultline::fabric
