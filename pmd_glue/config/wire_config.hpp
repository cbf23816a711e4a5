// SPDX-License-Identifier: BSD-3-Clause
// Configuration of devices on a wire, from the grants of the wire's switch.
#pragma once

#include <string>

#include "pmd_glue/config/config.hpp"

namespace faultline::glue {

/// Returns the configuration of one device on a wire, for a program that was started with faultline-run
/// --wire and has no configuration file. `request` is the text of $FAULTLINE_WIRE.
[[nodiscard]] Config wire_config(const std::string& request);

/// Takes a seat for each device on a wire. `request` is the text of $FAULTLINE_WIRE, for a device whose port
/// names no wire; nullptr if it is unset. Throws ConfigError.
void take_seats(Config& config, const char* request);

/// Returns whether a device is on a wire, so that a forked child needs another seat.
[[nodiscard]] bool has_seats(const Config& config);

}  // namespace faultline::glue
