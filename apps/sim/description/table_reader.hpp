// SPDX-License-Identifier: BSD-3-Clause
// Reads one table of the file that describes a fabric, with checks of types and ranges. A key that no caller
// has read is an error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

namespace faultline::fabric {

class TableReader {
 public:
  /// `prefix` is the table's dotted name, "" for the root. Without a table every key has its default.
  TableReader(const std::string& path, const toml::table* table, std::string prefix)
      : path_(path), table_(table), prefix_(std::move(prefix)) {}

  [[nodiscard]] bool has(std::string_view key) const { return table_ != nullptr && table_->contains(key); }
  [[nodiscard]] bool boolean(std::string_view key, bool otherwise);
  [[nodiscard]] uint64_t number(std::string_view key, uint64_t otherwise, uint64_t least, uint64_t most);
  [[nodiscard]] uint32_t number32(std::string_view key, uint64_t otherwise, uint64_t least, uint64_t most) {
    return static_cast<uint32_t>(number(key, otherwise, least, most));
  }
  /// As number(), and the key must be there.
  [[nodiscard]] uint32_t required_number(std::string_view key, uint64_t least, uint64_t most);
  [[nodiscard]] double real(std::string_view key, double otherwise, double least, double most);
  /// Returns "" if the key is absent.
  [[nodiscard]] std::string text(std::string_view key);
  [[nodiscard]] std::string required_text(std::string_view key, std::string_view like);
  /// Returns the index in `choices`; `otherwise` if the key is absent.
  [[nodiscard]] size_t choice(std::string_view key, std::span<const std::string_view> choices,
                              size_t otherwise);
  [[nodiscard]] std::vector<std::string> texts(std::string_view key);
  /// Returns a reader of a table inside this one.
  [[nodiscard]] TableReader table(std::string_view key);
  /// Returns readers of the tables of a list.
  [[nodiscard]] std::vector<TableReader> tables(std::string_view key);

  /// Call after all keys were read. Fails for the first other key.
  void finish() const;
  /// Throws DescriptionError with the line of the key, or of the table if the key is absent.
  [[noreturn]] void fail(std::string_view key, std::string_view message) const;

 private:
  [[nodiscard]] const toml::node* take(std::string_view key);
  [[nodiscard]] std::string name_of(std::string_view key) const;

  const std::string& path_;
  const toml::table* table_;
  std::string prefix_;
  std::vector<std::string> known_;
};

/// Returns the one line of an error.
[[nodiscard]] std::string error_line(const std::string& path, uint32_t line, std::string_view message);

}  // namespace faultline::fabric
