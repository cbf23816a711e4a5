// SPDX-License-Identifier: BSD-3-Clause
// A port as its driver makes it: not started yet. A driver on a DPDK Ethernet device derives from EthdevPort
// (ethdev_port.hpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "pmd_glue/ports/port.hpp"

namespace faultline::glue {

/// Parameters of open() for a driver; valid during open().
struct PortSetup {
  const Config& config;
  const DeviceConfig& device;
};

/// Reason why a port cannot be opened. `key` is relative to "device."; empty: the key that names the port.
struct PortFault {
  std::string message;
  std::string key = {};
};
/// Empty if a step succeeded.
using PortResult = std::optional<PortFault>;

/// The key of a fault that concerns EAL, not the device: too little memory.
inline constexpr std::string_view kPoolKey = "eal.memory_mib";

class DriverPort : public EthernetPort {
 public:
  /// Creates what the port stands on, and starts it. Called once.
  [[nodiscard]] virtual PortResult start(const PortSetup& setup) = 0;
};

}  // namespace faultline::glue
