// SPDX-License-Identifier: BSD-3-Clause
// Reads one table of the configuration: typed, ranged, and strict. A key that nobody asked for is an error.
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
  /// A probability, 0..1; 0 where the key is absent.
  [[nodiscard]] double ratio(std::string_view key);
  /// A list of numbers; empty where the key is absent.
  [[nodiscard]] std::vector<uint64_t> numbers(std::string_view key, uint64_t least, uint64_t most);
  /// "" where the key is absent.
  [[nodiscard]] std::string text(std::string_view key);
  /// `like` is an example for the error line.
  [[nodiscard]] std::string required_text(std::string_view key, std::string_view like);
  /// The index in `choices`; `otherwise` where the key is absent, or an error where that is negative.
  [[nodiscard]] size_t choice(std::string_view key, std::span<const std::string_view> choices, int otherwise);
  [[nodiscard]] std::vector<std::string> texts(std::string_view key);
  /// One string, or a list of them that is not empty; nothing where the key is absent.
  [[nodiscard]] std::vector<std::string> text_or_list(std::string_view key);
  [[nodiscard]] std::vector<std::string> required_text_or_list(std::string_view key, std::string_view like);
  /// nullptr where absent.
  [[nodiscard]] const toml::table* table(std::string_view key);
  [[nodiscard]] const toml::array* tables(std::string_view key);

  /// After all keys were asked for: any other key is an error, such as one of another kind of port.
  void finish() const;

  /// Throws ConfigError at the key's line, or at the table's where the key is absent.
  [[noreturn]] void fail(std::string_view key, std::string_view message) const;

 private:
  /// Fails for the first key in the file that is none of `keys`, with what `message(key)` says.
  template <typename Message>
  void refuse_others(std::span<const std::string_view> keys, Message message) const;
  [[nodiscard]] const toml::node* take(std::string_view key);
  [[nodiscard]] std::string name_of(std::string_view key) const;

  const std::string& path_;
  const toml::table& table_;
  const std::string prefix_;
  std::vector<std::string> known_;
};

/// The error line for a place in the file.
[[nodiscard]] std::string config_error_line(const std::string& path, uint32_t line, std::string_view message);

}  // namespace faultline::glue
