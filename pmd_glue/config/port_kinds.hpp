// SPDX-License-Identifier: BSD-3-Clause
// Configuration of each kind of port: one row for each kind. pmd_glue/ports/driver.hpp has the other half,
// which needs DPDK.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <toml++/toml.h>

#include "pmd_glue/config/config.hpp"

namespace faultline::glue {

class ConfigReader;

struct PortKindRow {
  PortKind kind;
  std::string_view name;
  std::string_view address_key;      ///< the key of [device.port] that names what the port attaches to
  std::string PortConfig::*address;  ///< its value
  /// Reads the keys of this kind. Throws ConfigError.
  void (*read)(ConfigReader& reader, PortConfig& port);
  bool stays_in_memory = false;  ///< frames never leave the host's memory, so that `icrc = false` is allowed
  bool may_be_uplink = false;    ///< allowed as a switch's uplink
  bool is_on_pci = false;        ///< EAL probes `address` at its start
  uint32_t most_mtu_bytes = 0;   ///< 0: no bound of this kind
  /// Returns true if two ports of this kind share a resource that they must not share. nullptr: no such
  /// resource.
  bool (*collide)(const PortConfig& a, const PortConfig& b) = nullptr;
  std::string_view collision = {};  ///< for the error line: "NAME and NAME ..."
};

/// All rows, in the order of PortKind.
[[nodiscard]] std::span<const PortKindRow> port_kinds();
[[nodiscard]] const PortKindRow& row_of(PortKind kind);

/// Reads [device.port]. Throws ConfigError.
[[nodiscard]] PortConfig read_port(const std::string& path, const toml::table& table);

}  // namespace faultline::glue
