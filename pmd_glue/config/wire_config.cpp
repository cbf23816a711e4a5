// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/config/wire_config.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "pmd_glue/wires/granted_addresses.hpp"
#include "pmd_glue/wires/wire_attachment.hpp"

namespace faultline::glue {
namespace {

static_assert(kMostHostAddresses == kMaxAddresses);

/// Returns nullptr for a named address of its own, which a process has from its first use of the device, and
/// while it looks at another process's: it may start others that look (scripts over sysfs, rdma-core's tests)
/// or that use the device (Valkey's test reads the interface, and starts a server).
std::shared_ptr<WireAttachment> attach(const Config& config, DeviceConfig& device) {
  std::string error;
  std::optional<SwitchGrant> holders;
  auto attachment = WireAttachment::take(device.port.request, error, holders);
  if (attachment == nullptr && !holders) throw ConfigError(error);
  const SwitchGrant& grant = attachment != nullptr ? attachment->grant() : *holders;
  if (device.mtu_bytes.value_or(0) > grant.mtu_bytes)
    throw ConfigError(fmt::format("faultline: {}: {}: device.mtu: wire {} carries at most {}", config.path,
                                  device.name, device.port.request.wire, grant.mtu_bytes));
  if (grant.by_sockets != 0 && device.vlan_id)
    throw ConfigError(fmt::format(
        "faultline: {}: {}: device.vlan: the kernel has the host's addresses, which wire {} shares",
        config.path, device.name, device.port.request.wire));
  device.addresses = addresses_of(grant);
  device.has_host_addresses = grant.by_sockets != 0;
  device.mac.bytes = grant.mac;
  device.mtu_bytes = device.mtu_bytes.value_or(grant.mtu_bytes);
  const WireRequest& request = device.port.request;
  return request.ipv4 != 0 && !request.shared ? nullptr : attachment;
}

}  // namespace

Config wire_config(const std::string& request) {
  Config config;
  config.path = "wire " + request.substr(0, request.find(','));
  DeviceConfig device;
  device.name = "faultline0";
  device.port.kind = PortKind::wire;
  config.devices.push_back(device);
  return config;
}

Attachments attach(Config& config, const char* request) {
  const auto is_unplaced = [](const DeviceConfig& device) {
    return device.port.kind == PortKind::wire && device.port.request.wire.empty();
  };
  const auto unplaced = std::count_if(config.devices.begin(), config.devices.end(), is_unplaced);
  if (unplaced != 0 && request == nullptr)
    throw ConfigError(fmt::format(
        "faultline: {}: device.port.wire: is missing; give one, or start the program with faultline-run "
        "--wire NAME --config FILE",
        config.path));
  if (request != nullptr && unplaced != 1)
    throw ConfigError(fmt::format(
        "faultline: {}: beside --wire (or $FAULTLINE_WIRE) there must be one device of [device.port] kind = "
        "\"wire\" that names no wire; there are {}",
        config.path, unplaced));
  Attachments attachments;
  for (DeviceConfig& device : config.devices) {
    if (is_unplaced(device)) {
      std::string error;
      const auto parsed = parse_wire_request(request, error);
      if (!parsed) throw ConfigError(error);
      device.port.request = *parsed;
    }
    if (device.port.kind != PortKind::wire) continue;
    if (auto attachment = attach(config, device)) attachments[device.name] = std::move(attachment);
  }
  return attachments;
}

}  // namespace faultline::glue
