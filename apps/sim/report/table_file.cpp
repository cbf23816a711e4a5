// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/report/table_file.hpp"

#include <cassert>
#include <cerrno>
#include <system_error>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

namespace faultline::fabric {
namespace {

/// A name of a node has no comma, quote or newline, so no field needs quotes.
std::string csv_of(const Cell& cell) {
  switch (cell.index()) {
    case 1:
      return fmt::format("{}", std::get<uint64_t>(cell));
    case 2:
      return fmt::format("{:.3f}", std::get<double>(cell));
    case 3:
      return std::get<std::string>(cell);
    default:
      return {};
  }
}

nlohmann::ordered_json json_of(const Cell& cell) {
  switch (cell.index()) {
    case 1:
      return std::get<uint64_t>(cell);
    case 2:
      return std::get<double>(cell);
    case 3:
      return std::get<std::string>(cell);
    default:
      return nullptr;
  }
}

}  // namespace

TableFile::TableFile(const std::string& directory, std::string_view name, FileFormat format,
                     std::initializer_list<std::string_view> columns)
    : path_(fmt::format("{}/{}.{}", directory, name, format == FileFormat::csv ? "csv" : "json")),
      format_(format),
      columns_(columns.begin(), columns.end()),
      file_(path_, std::ios::trunc) {
  check();
  if (format == FileFormat::csv)
    file_ << fmt::format("{}\n", fmt::join(columns_, ","));
  else
    file_ << '[';
}

void TableFile::row(std::initializer_list<Cell> cells) {
  assert(cells.size() == columns_.size());
  if (format_ == FileFormat::csv) {
    const char* before = "";
    for (const Cell& cell : cells) {
      file_ << before << csv_of(cell);
      before = ",";
    }
    file_ << '\n';
    return;
  }
  nlohmann::ordered_json object;
  const std::string* column = columns_.data();
  for (const Cell& cell : cells) object[*column++] = json_of(cell);
  file_ << (has_rows_ ? ",\n" : "\n") << object.dump();
  has_rows_ = true;
}

void TableFile::close() {
  if (format_ == FileFormat::json) file_ << "\n]\n";
  file_.close();
  check();
}

void TableFile::check() {
  if (!file_) throw std::system_error(errno, std::generic_category(), path_);
}

}  // namespace faultline::fabric
