// SPDX-License-Identifier: BSD-3-Clause
// Every counter of a device under one flat list of names: "odp.", "transport.", "parse.", "drop.", "port.".
#pragma once

#include <string>
#include <vector>

#include "stack/verbs/objects/backend.hpp"

namespace faultline::verbs {

/// Names in the order of `counter_values`; built once, they live as long as the process.
[[nodiscard]] const std::vector<std::string>& counter_names();
[[nodiscard]] std::vector<uint64_t> counter_values(DeviceBackend& backend);

}  // namespace faultline::verbs
