// SPDX-License-Identifier: BSD-3-Clause
// The names of all configuration keys. docs/configuration.md has the same ones (a test compares them).
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

/// The keys of a table; of [device.port], those of all kinds.
[[nodiscard]] std::span<const std::string_view> keys_of(std::string_view table);

/// What is wrong with a key that its table does not have: the nearest one, the table that has it, or all
/// there are.
[[nodiscard]] std::string unknown_key_message(std::string_view table, std::string_view key);

}  // namespace faultline::glue
