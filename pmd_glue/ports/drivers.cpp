// SPDX-License-Identifier: BSD-3-Clause
#include <array>

#include <spdlog/fmt/fmt.h>

#include "pmd_glue/config/port_kinds.hpp"
#include "pmd_glue/ports/driver.hpp"

namespace faultline::glue {
namespace {

// A port of kind "wire" has become one of kind "memif" before it is opened (wire_config.hpp).
constexpr std::array<const PortDriver*, 9> kDrivers{&kMemifDriver,    &kRingDriver,       &kTapDriver,
                                                    &kAfPacketDriver, &kAfXdpDriver,      &kPciDriver,
                                                    &kVhostDriver,    &kVirtioUserDriver, &kUdpDriver};

const PortDriver* driver_of(PortKind kind) {
  for (const PortDriver* driver : kDrivers)
    if (driver->kind == kind) return driver;
  return nullptr;
}

}  // namespace

std::unique_ptr<EthernetPort> EthernetPort::open(const Config& config, const DeviceConfig& device,
                                                 std::string& error) {
  const PortKindRow& row = row_of(device.port.kind);
  const PortDriver* const driver = driver_of(device.port.kind);
  PortResult fault = PortFault{fmt::format("a port of kind {} cannot be opened by itself", row.name)};
  if (driver != nullptr) {
    const PortSetup setup{config, device};
    std::unique_ptr<DriverPort> port = driver->make(setup);
    fault = port->start(setup);
    if (!fault) return port;
  }
  if (fault->key == kPoolKey)
    error = fmt::format("faultline: {}: {}: {}", config.path, kPoolKey, fault->message);
  else
    error = fmt::format("faultline: {}: {}: device.{}: {}", config.path, device.name,
                        fault->key.empty() ? fmt::format("port.{}", row.address_key) : fault->key,
                        fault->message);
  return nullptr;
}

uint32_t port_mtu_bytes(const DeviceConfig& device) {
  const PortDriver* const driver = driver_of(device.port.kind);
  return driver != nullptr ? driver->mtu_bytes(device) : device.mtu_bytes.value_or(kEthernetMtuBytes);
}

bool expects_link(const PortConfig& config) {
  const PortDriver* const driver = driver_of(config.kind);
  return driver == nullptr || driver->expects_link == nullptr || driver->expects_link(config);
}

bool child_may_open(const PortConfig& config) {
  const PortDriver* const driver = driver_of(config.kind);
  return driver != nullptr && driver->child_may_open;
}

}  // namespace faultline::glue
