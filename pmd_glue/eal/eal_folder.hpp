// SPDX-License-Identifier: BSD-3-Clause
// EAL's runtime directory, which contains its telemetry sockets.
#pragma once

#include <string>

namespace faultline::glue {

/// Returns this user's directory and creates it if needed; empty if that fails.
[[nodiscard]] std::string eal_folder();

}  // namespace faultline::glue
