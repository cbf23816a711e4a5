// SPDX-License-Identifier: BSD-3-Clause
// `faultline info`: versions, the machine, its limits and the devices, for a bug report.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "apps/faultline/checks.hpp"
#include "apps/faultline/start_program.hpp"

namespace faultline::cli {

/// Returns the page as JSON: sections of values. A key that ends with "_bytes" has a number of bytes.
[[nodiscard]] nlohmann::ordered_json info_of(const Facts& facts);
/// Returns the page for readers: a line a value, below a line for its section.
[[nodiscard]] std::string info_text(const nlohmann::ordered_json& info);

/// Prints the page. Without devices none is opened. Returns the exit status.
[[nodiscard]] int run_info(const DeviceChoice& devices, bool as_json);

}  // namespace faultline::cli
