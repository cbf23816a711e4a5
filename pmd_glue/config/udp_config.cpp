// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/config/udp_config.hpp"

#include <spdlog/fmt/fmt.h>

#include "pmd_glue/config/port_kinds.hpp"
#include "pmd_glue/link/host_address.hpp"
#include "stack/wire/link/address_text.hpp"

namespace faultline::glue {
namespace {

void complete(const Config& config, DeviceConfig& device) {
  const auto refuse = [&](const std::string& message) {
    throw ConfigError(fmt::format("faultline: {}: {}: device.ip: {}", config.path, device.name, message));
  };
  if (device.addresses.empty())
    for (const wire::Gid& gid : default_route_addresses()) device.addresses.push_back({gid, 0});
  if (device.addresses.empty())
    refuse("is missing, and the host has no default route whose address to use; give one of its addresses");
  device.has_host_addresses = true;
  device.port.interface.clear();
  for (IpNetwork& address : device.addresses) {
    const auto found = find_host_address(address.gid);
    if (!found)
      refuse(
          fmt::format("no interface of this host has the address {}; a port of kind udp has an address of "
                      "the host (ip address)",
                      text_of(address.gid)));
    address = found->network;
    if (device.port.interface.empty()) device.port.interface = found->interface;
  }
  device.mac = mac_of(device.addresses[0].gid);
}

}  // namespace

Config udp_config(const std::string& request) {
  Config config;
  config.path = "udp";
  DeviceConfig device;
  device.name = "faultline0";
  device.port.kind = PortKind::udp;
  for (size_t at = 0; request != "default" && at <= request.size();) {
    const size_t end = std::min(request.find(',', at), request.size());
    const std::string text = request.substr(at, end - at);
    const auto address = parse_address(text);
    if (!address || text.find('/') != std::string::npos)
      throw ConfigError(fmt::format(
          "faultline: udp: ip: \"{}\" is not an address of a host such as \"198.18.0.1\" or \"2001:2::1\"",
          text));
    device.addresses.push_back(*address);
    at = end + 1;
  }
  if (device.addresses.size() > kMaxAddresses)
    throw ConfigError(fmt::format("faultline: udp: ip: must be at most {} addresses", kMaxAddresses));
  config.devices.push_back(device);
  return config;
}

void find_host_addresses(Config& config) {
  for (DeviceConfig& device : config.devices)
    if (row_of(device.port.kind).has_host_addresses) complete(config, device);
}

}  // namespace faultline::glue
