// SPDX-License-Identifier: BSD-3-Clause
#include "stack/toml/checked_table.hpp"

#include <cstdlib>

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

namespace faultline {
namespace {

std::optional<uint64_t> number_of(const toml::node& node, uint64_t least, uint64_t most) {
  const int64_t value = node.is_integer() ? *node.value<int64_t>() : -1;
  const auto number = static_cast<uint64_t>(value);
  return value < 0 || number < least || number > most ? std::nullopt : std::optional(number);
}

std::optional<double> real_of(const toml::node& node, double least, double most) {
  const std::optional<double> value = node.is_number() ? node.value<double>() : std::nullopt;
  // This form of the condition also rejects NaN.
  return value && *value >= least && *value <= most ? value : std::nullopt;
}

}  // namespace

void CheckedFile::fail(uint32_t line, std::string_view message) const {
  const std::string place = line == 0 ? path : fmt::format("{}:{}", path, line);
  raise(fmt::format("{}{}{}: {}", program, program.empty() ? "" : ": ", place, message));
  std::abort();
}

toml::table CheckedFile::parse(std::optional<std::string_view> text) const {
  try {
    return text ? toml::parse(*text, path) : toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    fail(error.source().begin.line, error.description());
  }
}

CheckedTable::CheckedTable(const CheckedFile& file, const toml::table* table, std::string name)
    : file_(&file), table_(table), name_(std::move(name)) {
  if (table_ != nullptr && file_->check != nullptr) file_->check(*this);
}

std::string CheckedTable::name_of(std::string_view key) const {
  return name_.empty() ? std::string(key) : fmt::format("{}.{}", name_, key);
}

void CheckedTable::fail(std::string_view key, std::string_view message) const {
  const std::string line = fmt::format("{}: {}", name_of(key), message);
  if (!has(key)) fail_whole(line);
  file_->fail(table_->get(key)->source().begin.line, line);
}

void CheckedTable::fail_whole(std::string_view message) const {
  // The root table, and an absent one, have no position in the file.
  file_->fail(table_ == nullptr ? 1 : std::max(table_->source().begin.line, 1U), message);
}

void CheckedTable::require(std::string_view key, std::string_view hint) const {
  if (!has(key)) fail(key, fmt::format("is missing; {}", hint));
}

const toml::node* CheckedTable::take(std::string_view key) {
  known_.push_back(key);
  return table_ == nullptr ? nullptr : table_->get(key);
}

void CheckedTable::read(std::string_view key, bool& value) {
  const toml::node* const node = take(key);
  if (node == nullptr) return;
  if (!node->is_boolean()) fail(key, "must be true or false");
  value = *node->value<bool>();
}

uint64_t CheckedTable::number(std::string_view key, uint64_t otherwise, uint64_t least, uint64_t most) {
  const toml::node* const node = take(key);
  if (node == nullptr) return otherwise;
  const auto value = number_of(*node, least, most);
  if (!value) fail(key, fmt::format("must be a whole number from {} to {}", least, most));
  return *value;
}

double CheckedTable::real(std::string_view key, double otherwise, double least, double most) {
  const toml::node* const node = take(key);
  if (node == nullptr) return otherwise;
  const auto value = real_of(*node, least, most);
  if (!value) fail(key, fmt::format("must be a number from {} to {}", least, most));
  return *value;
}

double CheckedTable::ratio(std::string_view key, double otherwise) {
  const toml::node* const node = take(key);
  if (node == nullptr) return otherwise;
  const auto value = real_of(*node, 0, 1);
  if (!value) fail(key, "must be a ratio from 0 to 1, such as 0.01");
  return *value;
}

std::string CheckedTable::text(std::string_view key) {
  const toml::node* const node = take(key);
  if (node == nullptr) return {};
  if (!node->is_string()) fail(key, "must be a string in quotes");
  std::string value = *node->value<std::string>();
  if (value.empty()) fail(key, "must not be empty");
  return value;
}

std::string CheckedTable::required_text(std::string_view key, std::string_view like) {
  require(key, fmt::format("give one, such as \"{}\"", like));
  return text(key);
}

size_t CheckedTable::choice(std::string_view key, std::span<const std::string_view> choices, int otherwise) {
  const std::string list = fmt::format("{}", fmt::join(choices, ", "));
  if (otherwise < 0) require(key, fmt::format("give one of {}", list));
  const std::string value = text(key);
  if (value.empty()) return static_cast<size_t>(otherwise);
  const auto found = std::ranges::find(choices, value);
  if (found == choices.end()) fail(key, fmt::format("\"{}\" is not one of {}", value, list));
  return static_cast<size_t>(found - choices.begin());
}

std::vector<uint64_t> CheckedTable::numbers(std::string_view key, uint64_t least, uint64_t most) {
  const toml::node* const node = take(key);
  std::vector<uint64_t> values;
  if (node == nullptr) return values;
  const std::string wrong = fmt::format("must be a list of whole numbers from {} to {}", least, most);
  if (!node->is_array()) fail(key, wrong);
  for (const toml::node& element : *node->as_array()) {
    const auto value = number_of(element, least, most);
    if (!value) fail(key, wrong);
    values.push_back(*value);
  }
  return values;
}

std::vector<std::string> CheckedTable::texts(std::string_view key) {
  const toml::node* const node = take(key);
  std::vector<std::string> values;
  if (node == nullptr) return values;
  if (!node->is_array()) fail(key, "must be a list of strings");
  for (const toml::node& element : *node->as_array()) {
    if (!element.is_string()) fail(key, "must be a list of strings");
    values.push_back(*element.value<std::string>());
  }
  return values;
}

std::vector<std::string> CheckedTable::text_or_list(std::string_view key) {
  std::vector<std::string> values;
  if (has_list(key)) {
    values = texts(key);
    if (values.empty()) fail(key, "must not be empty");
  } else if (std::string value = text(key); !value.empty()) {
    values.push_back(std::move(value));
  }
  return values;
}

CheckedTable CheckedTable::table(std::string_view key) {
  const toml::node* const node = take(key);
  if (node != nullptr && !node->is_table()) fail(key, fmt::format("must be a table, [{}]", name_of(key)));
  return {*file_, node == nullptr ? nullptr : node->as_table(), name_of(key)};
}

std::vector<CheckedTable> CheckedTable::tables(std::string_view key) {
  const toml::node* const node = take(key);
  std::vector<CheckedTable> readers;
  if (node == nullptr) return readers;
  if (!node->is_array_of_tables()) fail(key, fmt::format("must be written as [[{}]]", name_of(key)));
  for (const toml::node& element : *node->as_array())
    readers.emplace_back(*file_, element.as_table(), name_of(key));
  return readers;
}

std::optional<std::string_view> CheckedTable::first_other(std::span<const std::string_view> keys) const {
  if (table_ == nullptr) return std::nullopt;
  // The table is sorted by name; errors appear from the top of the file.
  const toml::node* first = nullptr;
  std::optional<std::string_view> name;
  for (const auto& [key, node] : *table_) {
    if (std::ranges::find(keys, key.str()) != keys.end()) continue;
    if (first != nullptr && first->source().begin.line <= node.source().begin.line) continue;
    first = &node;
    name = key.str();
  }
  return name;
}

void CheckedTable::allow_only(std::span<const std::string_view> keys) const {
  if (const auto other = first_other(keys))
    fail(*other, fmt::format("unknown key; known here: {}", fmt::join(keys, ", ")));
}

}  // namespace faultline
