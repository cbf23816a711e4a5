// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/description/table_reader.hpp"

#include <algorithm>
#include <optional>

#include <spdlog/fmt/fmt.h>

#include "apps/sim/description/description.hpp"

namespace faultline::fabric {

std::string error_line(const std::string& path, uint32_t line, std::string_view message) {
  return fmt::format("faultline-sim: {}:{}: {}", path, line, message);
}

std::string TableReader::name_of(std::string_view key) const {
  return prefix_.empty() ? std::string(key) : fmt::format("{}.{}", prefix_, key);
}

void TableReader::fail(std::string_view key, std::string_view message) const {
  uint32_t line = 1;  // the root table, and an absent one, have no position in the file
  if (table_ != nullptr) {
    const toml::node* node = table_->get(key);
    line = std::max((node != nullptr ? node->source() : table_->source()).begin.line, 1U);
  }
  throw DescriptionError(error_line(path_, line, fmt::format("{}: {}", name_of(key), message)));
}

const toml::node* TableReader::take(std::string_view key) {
  known_.emplace_back(key);
  return table_ == nullptr ? nullptr : table_->get(key);
}

bool TableReader::boolean(std::string_view key, bool otherwise) {
  const toml::node* node = take(key);
  if (node == nullptr) return otherwise;
  if (!node->is_boolean()) fail(key, "must be true or false");
  return *node->value<bool>();
}

uint64_t TableReader::number(std::string_view key, uint64_t otherwise, uint64_t least, uint64_t most) {
  const toml::node* node = take(key);
  if (node == nullptr) return otherwise;
  const std::optional<int64_t> value = node->is_integer() ? node->value<int64_t>() : std::nullopt;
  if (!value || *value < 0 || static_cast<uint64_t>(*value) < least || static_cast<uint64_t>(*value) > most)
    fail(key, fmt::format("must be a whole number from {} to {}", least, most));
  return static_cast<uint64_t>(*value);
}

uint32_t TableReader::required_number(std::string_view key, uint64_t least, uint64_t most) {
  if (!has(key)) fail(key, fmt::format("is missing; give a whole number from {} to {}", least, most));
  return number32(key, 0, least, most);
}

double TableReader::real(std::string_view key, double otherwise, double least, double most) {
  const toml::node* node = take(key);
  if (node == nullptr) return otherwise;
  const std::optional<double> value = node->is_number() ? node->value<double>() : std::nullopt;
  // This form of the condition also rejects NaN.
  if (!value || !(*value >= least && *value <= most))
    fail(key, fmt::format("must be a number from {} to {}", least, most));
  return *value;
}

std::string TableReader::text(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return {};
  if (!node->is_string() || node->value<std::string>()->empty())
    fail(key, "must be a string in quotes that is not empty");
  return *node->value<std::string>();
}

std::string TableReader::required_text(std::string_view key, std::string_view like) {
  if (!has(key)) fail(key, fmt::format("is missing; give one, such as \"{}\"", like));
  return text(key);
}

size_t TableReader::choice(std::string_view key, std::span<const std::string_view> choices,
                           size_t otherwise) {
  const std::string value = text(key);
  if (value.empty()) return otherwise;
  const auto found = std::find(choices.begin(), choices.end(), value);
  if (found == choices.end())
    fail(key, fmt::format("\"{}\" is not one of {}", value, fmt::join(choices, ", ")));
  return static_cast<size_t>(found - choices.begin());
}

std::vector<std::string> TableReader::texts(std::string_view key) {
  const toml::node* node = take(key);
  std::vector<std::string> values;
  if (node == nullptr) return values;
  const toml::array* array = node->as_array();
  if (array == nullptr) fail(key, "must be a list of strings");
  for (const toml::node& element : *array) {
    if (!element.is_string()) fail(key, "must be a list of strings");
    values.push_back(*element.value<std::string>());
  }
  return values;
}

TableReader TableReader::table(std::string_view key) {
  const toml::node* node = take(key);
  if (node != nullptr && !node->is_table()) fail(key, fmt::format("must be a table, [{}]", name_of(key)));
  return {path_, node == nullptr ? nullptr : node->as_table(), name_of(key)};
}

std::vector<TableReader> TableReader::tables(std::string_view key) {
  const toml::node* node = take(key);
  std::vector<TableReader> readers;
  if (node == nullptr) return readers;
  const toml::array* array = node->as_array();
  const auto is_table = [](const toml::node& element) { return element.is_table(); };
  if (array == nullptr || !std::ranges::all_of(*array, is_table))
    fail(key, fmt::format("must be a list of tables, [[{}]]", name_of(key)));
  for (const toml::node& element : *array) readers.emplace_back(path_, element.as_table(), name_of(key));
  return readers;
}

void TableReader::finish() const {
  if (table_ == nullptr) return;
  // The first in the file: the table itself is sorted by name.
  const toml::key* first = nullptr;
  for (const auto& [key, node] : *table_) {
    if (std::ranges::find(known_, key.str()) != known_.end()) continue;
    if (first == nullptr || key.source().begin.line < first->source().begin.line) first = &key;
  }
  if (first == nullptr) return;
  throw DescriptionError(error_line(
      path_, first->source().begin.line,
      fmt::format("{}: is not known here; the keys are {}", name_of(first->str()), fmt::join(known_, ", "))));
}

}  // namespace faultline::fabric
