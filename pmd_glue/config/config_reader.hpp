// SPDX-License-Identifier: BSD-3-Clause
// Reads one table of the configuration, with checks of types and ranges. A key that no caller has read is an
// error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

namespace faultline::glue {

class ConfigReader {
 public:
  /// `prefix` is the table's dotted name, "" for the root. Throws ConfigError for the first key in the file
  /// that the table does not have (config_keys.hpp).
  ConfigReader(const std::string& path, const toml::table& table, std::string prefix);

  [[nodiscard]] bool has(std::string_view key) const { return table_.contains(key); }
  [[nodiscard]] bool boolean(std::string_view key, bool otherwise);
  [[nodiscard]] uint64_t number(std::string_view key, uint64_t otherwise, uint64_t least, uint64_t most);
  /// Returns a probability, 0..1; 0 if the key is absent.
  [[nodiscard]] double ratio(std::string_view key);
  /// Returns a list of numbers; empty if the key is absent.
  [[nodiscard]] std::vector<uint64_t> numbers(std::string_view key, uint64_t least, uint64_t most);
  /// Returns "" if the key is absent.
  [[nodiscard]] std::string text(std::string_view key);
  /// `like` is an example for the error line.
  [[nodiscard]] std::string required_text(std::string_view key, std::string_view like);
  /// Returns the index in `choices`; `otherwise` if the key is absent. Absence is an error if `otherwise` is
  /// negative.
  [[nodiscard]] size_t choice(std::string_view key, std::span<const std::string_view> choices, int otherwise);
  [[nodiscard]] std::vector<std::string> texts(std::string_view key);
  /// Reads one string or a non-empty list of strings; empty if the key is absent.
  [[nodiscard]] std::vector<std::string> text_or_list(std::string_view key);
  [[nodiscard]] std::vector<std::string> required_text_or_list(std::string_view key, std::string_view like);
  /// Return nullptr if the key is absent.
  [[nodiscard]] const toml::table* table(std::string_view key);
  [[nodiscard]] const toml::array* tables(std::string_view key);

  /// Call after all keys were read: any other key is an error, such as a key of another kind of port.
  void finish() const;

  /// Throws ConfigError at the key's line, or at the table's if the key is absent.
  [[noreturn]] void fail(std::string_view key, std::string_view message) const;

 private:
  /// Fails for the first key in the file that is not in `keys`, with the text of `message(key)`.
  template <typename Message>
  void refuse_others(std::span<const std::string_view> keys, Message message) const;
  [[nodiscard]] const toml::node* take(std::string_view key);
  [[nodiscard]] std::string name_of(std::string_view key) const;

  const std::string& path_;
  const toml::table& table_;
  const std::string prefix_;
  std::vector<std::string> known_;
};

/// Returns the error line for a position in the file.
[[nodiscard]] std::string config_error_line(const std::string& path, uint32_t line, std::string_view message);

}  // namespace faultline::glue
