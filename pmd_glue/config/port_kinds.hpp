// SPDX-License-Identifier: BSD-3-Clause
// Configuration of each kind of port: one row for each kind. pmd_glue/ports/driver.hpp has the other half,
// which needs DPDK.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "pmd_glue/config/config.hpp"

namespace faultline {
class CheckedTable;
}

namespace faultline::glue {

struct PortKindRow {
  PortKind kind;
  std::string_view name;
  std::string_view address_key;      ///< the key of [device.port] that names what the port attaches to
  std::string PortConfig::*address;  ///< its value; nullptr: not one text
  /// Reads the keys of this kind. Throws ConfigError.
  void (*read)(CheckedTable& reader, PortConfig& port);
  bool stays_in_memory = false;  ///< frames never leave the host's memory, so that `icrc = false` is allowed
  bool may_be_uplink = false;    ///< allowed as a switch's uplink
  /// The default role of a kind that may have either. QEMU's end of a vhost-user socket is a client unless it
  /// gets server=on.
  bool is_server = false;
  bool is_on_pci = false;      ///< EAL probes `address` at its start
  bool shares_memory = false;  ///< the peer maps EAL's memory, which the port passes by descriptor
  /// The device has addresses of the host; the kernel has the routes and neighbours.
  bool has_host_addresses = false;
  uint32_t most_mtu_bytes = 0;  ///< 0: no bound of this kind
  /// Returns true if two ports of this kind share a resource that they must not share. nullptr: no such
  /// resource.
  bool (*collide)(const PortConfig& a, const PortConfig& b) = nullptr;
  std::string_view collision = {};  ///< for the error line: "NAME and NAME ..."
};

/// All rows, in the order of PortKind.
[[nodiscard]] std::span<const PortKindRow> port_kinds();
[[nodiscard]] bool is_interface_name(std::string_view name);
/// True if a socket can have this path, and it has a folder. A comma would end the argument of a virtual
/// device.
[[nodiscard]] bool is_socket_path(std::string_view path);
[[nodiscard]] const PortKindRow& row_of(PortKind kind);
/// True if a device's port is a PCI device.
[[nodiscard]] bool any_pci_port(const Config& config);

/// Returns the address of a PCI port without the PMD's arguments, which follow it after a comma.
[[nodiscard]] std::string_view pci_address_of(std::string_view address);

/// Returns whether the address of a PCI port is that of a device on Hyper-V's VMBus, a UUID.
[[nodiscard]] bool is_vmbus_address(std::string_view address);

/// Reads [device.port]. Throws ConfigError.
[[nodiscard]] PortConfig read_port(CheckedTable reader);

}  // namespace faultline::glue
