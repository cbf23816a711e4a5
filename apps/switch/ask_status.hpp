// SPDX-License-Identifier: BSD-3-Clause
// The client of `faultline-switch --status`.
#pragma once

#include <string>

namespace faultline::switching {

/// Asks the switch of a wire of this user for its status. Returns the text; empty with one line in `error` on
/// failure.
[[nodiscard]] std::string ask_status(const std::string& wire, bool as_json, std::string& error);

}  // namespace faultline::switching
