// SPDX-License-Identifier: BSD-3-Clause
// Devices on a wire: what the wire's switch gives a process that takes a seat there.
#pragma once

#include <string>

#include "pmd_glue/config/config.hpp"

namespace faultline::glue {

/// Of a program that was started on a wire and has no configuration besides (faultline-run --wire): one
/// device. `request` is $FAULTLINE_WIRE's text.
[[nodiscard]] Config wire_config(const std::string& request);

/// Takes a seat for each device on a wire. `request` is $FAULTLINE_WIRE's text, for the device whose port
/// names no wire; nullptr where there is none. Throws ConfigError.
void take_seats(Config& config, const char* request);

/// Whether a device is on a wire, so that a forked child needs another seat.
[[nodiscard]] bool has_seats(const Config& config);

}  // namespace faultline::glue
