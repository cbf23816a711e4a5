// SPDX-License-Identifier: BSD-3-Clause
// Configuration of devices on a wire, from the grants of the wire's switch.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "pmd_glue/config/config.hpp"
#include "pmd_glue/wires/wire_attachment.hpp"

namespace faultline::glue {

/// Returns the configuration of one device on a wire, for a program that was started with faultline-run
/// --wire and has no configuration file. `request` is the text of $FAULTLINE_WIRE.
[[nodiscard]] Config wire_config(const std::string& request);

/// By the device's name.
using Attachments = std::map<std::string, std::shared_ptr<WireAttachment>>;

/// Attaches each device whose port is of kind "wire", and completes its configuration from the switch's
/// grant. `request` is the text of $FAULTLINE_WIRE, for a device whose port names no wire; nullptr if it is
/// unset. A device whose address another process has gets no attachment, and the configuration that the other
/// has. Throws ConfigError.
[[nodiscard]] Attachments attach(Config& config, const char* request);

}  // namespace faultline::glue
