// SPDX-License-Identifier: BSD-3-Clause
// Reads the tables of a TOML file with checks of types and ranges. A mistake is one line with the file, the
// line and the key's dotted name, as in "faultline: f.toml:3: device.port.kind: ...".
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <toml++/toml.h>

namespace faultline {

class CheckedTable;

/// A file of the user, and the exception for a mistake in it.
struct CheckedFile {
  std::string_view program;  ///< begins the error line; may be empty
  std::string path;
  void (*raise)(const std::string& line);  ///< throws; see raise_as()
  /// Checks a table before any of its values is read. nullptr: no check.
  void (*check)(const CheckedTable& table) = nullptr;

  /// `line` 0 is the whole file.
  [[noreturn]] void fail(uint32_t line, std::string_view message) const;
  /// Returns the root table of the file, or of `text` if the caller has read the file.
  [[nodiscard]] toml::table parse(std::optional<std::string_view> text = std::nullopt) const;
};

template <typename Error>
[[noreturn]] void raise_as(const std::string& line) {
  throw Error(line);
}

/// Each function that reads a key throws the file's exception for a wrong value. The file, its root table and
/// the texts of keys outlive the reader.
class CheckedTable {
 public:
  /// `name` is dotted, "" for the root. Without a table every key is absent.
  CheckedTable(const CheckedFile& file, const toml::table* table, std::string name = "");

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] bool has(std::string_view key) const { return table_ != nullptr && table_->contains(key); }
  [[nodiscard]] bool has_list(std::string_view key) const { return has(key) && table_->get(key)->is_array(); }
  /// Returns the table, which must be in the file.
  [[nodiscard]] const toml::table& raw() const { return *table_; }

  // These leave `value` as it is if the key is absent.
  void read(std::string_view key, bool& value);
  /// Reads a whole number of `unit`.
  template <std::unsigned_integral Number>
  void read(std::string_view key, Number& value, uint64_t least = 0,
            uint64_t most = std::min<uint64_t>(std::numeric_limits<Number>::max(), INT64_MAX),
            uint64_t unit = 1) {
    const uint64_t count = number(key, 0, least, most);
    if (has(key)) value = static_cast<Number>(unit * count);
  }
  /// Reads a name of an enumerator. `choices` has the names in the order of their values.
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void read(std::string_view key, Enum& value, std::span<const std::string_view> choices) {
    value = static_cast<Enum>(choice(key, choices, static_cast<int>(value)));
  }

  [[nodiscard]] uint64_t number(std::string_view key, uint64_t otherwise, uint64_t least, uint64_t most);
  [[nodiscard]] double real(std::string_view key, double otherwise, double least, double most);
  /// Returns a probability, 0..1.
  [[nodiscard]] double ratio(std::string_view key, double otherwise = 0);
  /// Returns "" if the key is absent. A text that is there is not empty.
  [[nodiscard]] std::string text(std::string_view key);
  /// `like` is an example for the error line.
  [[nodiscard]] std::string required_text(std::string_view key, std::string_view like);
  /// Returns the index in `choices`; `otherwise` if the key is absent. Absence is an error if `otherwise` is
  /// negative.
  [[nodiscard]] size_t choice(std::string_view key, std::span<const std::string_view> choices, int otherwise);
  // Lists are empty if the key is absent.
  [[nodiscard]] std::vector<uint64_t> numbers(std::string_view key, uint64_t least, uint64_t most);
  [[nodiscard]] std::vector<std::string> texts(std::string_view key);
  /// Reads one string or a non-empty list of strings.
  [[nodiscard]] std::vector<std::string> text_or_list(std::string_view key);
  [[nodiscard]] CheckedTable table(std::string_view key);
  [[nodiscard]] std::vector<CheckedTable> tables(std::string_view key);

  /// Fails if the key is absent. `hint` is what to do.
  void require(std::string_view key, std::string_view hint) const;
  /// Returns the first key in the file that is not one of `keys`.
  [[nodiscard]] std::optional<std::string_view> first_other(std::span<const std::string_view> keys) const;
  /// Fails for a key that is not one of `keys`.
  void allow_only(std::span<const std::string_view> keys) const;
  /// Fails for a key that no caller has read. Call after all keys were read.
  void finish() const { allow_only(known_); }

  /// Throws at the key's line, or at the table's if the key is absent.
  [[noreturn]] void fail(std::string_view key, std::string_view message) const;
  /// Throws at the table's line. `message` stands without the table's name.
  [[noreturn]] void fail_whole(std::string_view message) const;

 private:
  [[nodiscard]] const toml::node* take(std::string_view key);
  [[nodiscard]] std::string name_of(std::string_view key) const;

  const CheckedFile* file_;
  const toml::table* table_;
  std::string name_;
  std::vector<std::string_view> known_;
};

}  // namespace faultline
