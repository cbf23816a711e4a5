// SPDX-License-Identifier: BSD-3-Clause
// A file with a table: CSV (RFC 4180), or a JSON list of objects.
#pragma once

#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace faultline::fabric {

enum class FileFormat : uint8_t { csv, json };

/// A value; none is an empty field, or null.
using Cell = std::variant<std::monostate, uint64_t, double, std::string>;

class TableFile {
 public:
  /// Creates DIRECTORY/NAME.csv or .json. Throws std::system_error.
  TableFile(const std::string& directory, std::string_view name, FileFormat format,
            std::initializer_list<std::string_view> columns);

  /// Writes a row of as many cells as there are columns.
  void row(std::initializer_list<Cell> cells);
  /// Ends the file. Throws std::system_error if a write has failed.
  void close();

 private:
  void check();

  const std::string path_;
  const FileFormat format_;
  const std::vector<std::string> columns_;
  std::ofstream file_;
  bool has_rows_ = false;
};

}  // namespace faultline::fabric
