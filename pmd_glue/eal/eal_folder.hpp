// SPDX-License-Identifier: BSD-3-Clause
// EAL's runtime folder, which has the sockets of its telemetry.
#pragma once

#include <string>

namespace faultline::glue {

/// This user's, made where there is none. Empty where none can be made.
[[nodiscard]] std::string eal_folder();

}  // namespace faultline::glue
