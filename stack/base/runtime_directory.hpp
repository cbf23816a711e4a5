// SPDX-License-Identifier: BSD-3-Clause
// Where the processes of one user find each other: $XDG_RUNTIME_DIR/faultline, or /tmp/faultline-UID where
// there is none, or /run/user/UID/faultline where another user has that.
#pragma once

#include <string>
#include <vector>

namespace faultline {

/// The directory, made where it is missing: this user's alone. "" and one line in `error` where it cannot be
/// trusted.
[[nodiscard]] std::string runtime_directory(std::string& error);

/// The first of them that is this user's alone, or that can be made; the same.
[[nodiscard]] std::string usable_directory(const std::vector<std::string>& candidates, std::string& error);

}  // namespace faultline
