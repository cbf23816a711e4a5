// SPDX-License-Identifier: BSD-3-Clause
// The port drivers: one row for each kind of port. docs/design/ports.md describes how to add one.
#pragma once

#include <memory>

#include "pmd_glue/config/config.hpp"
#include "pmd_glue/ports/ethdev_port.hpp"

namespace faultline::glue {

inline constexpr uint32_t kEthernetMtuBytes = 1500;
/// MTU of memory ports: a path MTU of 4096 plus headers.
inline constexpr uint32_t kMemoryMtuBytes = 4500;

struct PortDriver {
  PortKind kind;
  /// Returns the port before it is started.
  std::unique_ptr<DriverPort> (*make)(const PortSetup& setup);
  /// The L3 MTU before the port is open.
  uint32_t (*mtu_bytes)(const DeviceConfig& device);
  /// nullptr: the link comes up with the port.
  bool (*expects_link)(const PortConfig& config) = nullptr;
  bool child_may_open = false;  ///< a forked child gets a separate port under the same configuration
};

extern const PortDriver kMemifDriver;
extern const PortDriver kRingDriver;
extern const PortDriver kTapDriver;
extern const PortDriver kAfPacketDriver;
extern const PortDriver kAfXdpDriver;
extern const PortDriver kPciDriver;
extern const PortDriver kVhostDriver;
extern const PortDriver kVirtioUserDriver;
extern const PortDriver kUdpDriver;

}  // namespace faultline::glue
