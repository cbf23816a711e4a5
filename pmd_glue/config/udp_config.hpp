// SPDX-License-Identifier: BSD-3-Clause
// Configuration of devices on the host's own addresses (ports of kind udp).
#pragma once

#include <string>

#include "pmd_glue/config/config.hpp"

namespace faultline::glue {

/// Returns the configuration of one device on addresses of the host, for a program that was started with
/// faultline-run --udp. `request` is the text of $FAULTLINE_UDP: "default", or addresses with commas between
/// them. Throws ConfigError.
[[nodiscard]] Config udp_config(const std::string& request);

/// Completes the devices on the host's addresses. A device without addresses gets those of the default
/// routes; prefix lengths and interface are those of the host. Throws ConfigError if the host has no such
/// address.
void find_host_addresses(Config& config);

}  // namespace faultline::glue
