// SPDX-License-Identifier: BSD-3-Clause
// The configuration of a program that was started on a wire (faultline-run --wire): one device, with what the
// wire's switch gives it.
#pragma once

#include <string>

#include "pmd_glue/config.hpp"

namespace faultline::glue {

/// `request` is $FAULTLINE_WIRE's text. Takes a seat. Throws ConfigError.
[[nodiscard]] Config wire_config(const std::string& request);

}  // namespace faultline::glue
