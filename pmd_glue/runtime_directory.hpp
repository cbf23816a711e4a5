// SPDX-License-Identifier: BSD-3-Clause
// Where the processes of one user find each other: $XDG_RUNTIME_DIR/faultline, or /tmp/faultline-UID where
// there is none.
#pragma once

#include <string>

namespace faultline::glue {

/// The directory, made where it is missing: this user's alone. "" and one line in `error` where it cannot be
/// trusted.
[[nodiscard]] std::string runtime_directory(std::string& error);

}  // namespace faultline::glue
