// SPDX-License-Identifier: BSD-3-Clause
// The names of all configuration keys. docs/configuration.md lists the same keys (a test compares them).
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace faultline::glue {

struct ConfigTable {
  std::string_view name;  ///< dotted, as in error lines; "" for the root
  std::span<const std::string_view> keys;
};

[[nodiscard]] std::span<const ConfigTable> config_tables();

/// Returns the keys of a table; for [device.port], the keys of all kinds.
[[nodiscard]] std::span<const std::string_view> keys_of(std::string_view table);

/// Returns the error for an unknown key: the nearest key, the table that has the key, or all keys of the
/// table.
[[nodiscard]] std::string unknown_key_message(std::string_view table, std::string_view key);

}  // namespace faultline::glue
