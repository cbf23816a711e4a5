// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/devices.hpp"

#include <cstdlib>

#include <spdlog/fmt/fmt.h>

#include "pmd_glue/config/config.hpp"
#include "pmd_glue/config/udp_config.hpp"
#include "pmd_glue/wires/wire_request.hpp"

namespace faultline::cli {
namespace {

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr ? text : "";
}

/// Throws glue::ConfigError if the library would refuse the text.
void check(const DeviceChoice& devices) {
  if (!devices.config.empty()) static_cast<void>(glue::load_config(devices.config));
  if (!devices.wire.empty()) {
    std::string error;
    const auto request = glue::parse_wire_request(devices.wire, error);
    if (!request) throw glue::ConfigError(error);
    if (!glue::is_wire_name(request->wire))
      throw glue::ConfigError(fmt::format("faultline: --wire: \"{}\" is not 1 to {} letters, digits, _ or -",
                                          request->wire, glue::kMaxWireNameBytes));
  }
  if (!devices.udp.empty()) static_cast<void>(glue::udp_config(devices.udp));
}

}  // namespace

DeviceChoice choose_devices(const DeviceOptions& options) {
  DeviceChoice devices{.config = options.config, .wire = options.wire, .udp = {}};
  if (options.udp) devices.udp = options.ip.empty() ? "default" : options.ip;
  if (text_of(devices).empty())
    devices = {.config = variable("FAULTLINE_CONFIG"),
               .wire = variable("FAULTLINE_WIRE"),
               .udp = variable("FAULTLINE_UDP")};
  check(devices);
  return devices;
}

std::string text_of(const DeviceChoice& devices) {
  if (!devices.config.empty()) return devices.config;
  if (!devices.wire.empty()) return "wire " + devices.wire.substr(0, devices.wire.find(','));
  if (!devices.udp.empty()) return "the host's own address";
  return {};
}

}  // namespace faultline::cli
