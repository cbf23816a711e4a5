// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/ports/kernel_interface.hpp"

#include <cstring>

#include <spdlog/fmt/fmt.h>

#include "pmd_glue/link/interface.hpp"
#include "pmd_glue/ports/driver.hpp"
#include "stack/base/log.hpp"

namespace faultline::glue {

PortResult KernelInterfacePort::prepare(const PortSetup& setup) {
  const std::string& interface = setup.device.port.interface;
  if (!interface_exists(interface)) return PortFault{fmt::format("there is no interface {}", interface)};
  if (const auto missing = missing_rights()) return PortFault{*missing};
  if (!interface_is_running(interface_index(interface)))
    log().warn(
        "{}: the interface {} is down: nothing is sent or received before it is up (ip link set {} up)",
        setup.device.name, interface, interface);
  if (!setup.device.mtu_bytes) return {};
  if (const int failed = set_interface_mtu(interface, *setup.device.mtu_bytes); failed != 0)
    return PortFault{
        fmt::format("{} does not take {}: {}", interface, *setup.device.mtu_bytes, std::strerror(failed)),
        "mtu"};
  return {};
}

PortResult KernelInterfacePort::finish(const PortSetup& setup) {
  interface_index_ = interface_index(setup.device.port.interface);
  // The interface keeps its own MAC address; the device has a different one on the same link.
  return receive_for_any_address();
}

bool KernelInterfacePort::link_up() const {
  return EthdevPort::link_up() && interface_is_running(interface_index_);
}

bool KernelInterfacePort::is_gone() const {
  return !interface_index_exists(interface_index_);
}

uint32_t interface_port_mtu_bytes(const DeviceConfig& device) {
  return device.mtu_bytes.value_or(interface_mtu_bytes(device.port.interface).value_or(kEthernetMtuBytes));
}

bool interface_expects_link(const PortConfig& config) {
  return interface_is_running(interface_index(config.interface));
}

}  // namespace faultline::glue
