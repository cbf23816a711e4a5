// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/config/config_reader.hpp"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "pmd_glue/config/config.hpp"
#include "pmd_glue/config/config_keys.hpp"

namespace faultline::glue {

std::string config_error_line(const std::string& path, uint32_t line, std::string_view message) {
  return fmt::format("faultline: {}:{}: {}", path, line, message);
}

ConfigReader::ConfigReader(const std::string& path, const toml::table& table, std::string prefix)
    : path_(path), table_(table), prefix_(std::move(prefix)) {
  // Checked before any value: a misspelt key is the likely cause of a missing one.
  const auto keys = keys_of(prefix_);
  refuse_others(keys, [&](std::string_view key) { return unknown_key_message(prefix_, key); });
}

std::string ConfigReader::name_of(std::string_view key) const {
  return prefix_.empty() ? std::string(key) : fmt::format("{}.{}", prefix_, key);
}

void ConfigReader::fail(std::string_view key, std::string_view message) const {
  const toml::node* node = table_.get(key);
  const uint32_t line = (node != nullptr ? node->source() : table_.source()).begin.line;
  // The root table has no position in the file.
  throw ConfigError(
      config_error_line(path_, std::max(line, 1U), fmt::format("{}: {}", name_of(key), message)));
}

const toml::node* ConfigReader::take(std::string_view key) {
  known_.emplace_back(key);
  return table_.get(key);
}

bool ConfigReader::boolean(std::string_view key, bool otherwise) {
  const toml::node* node = take(key);
  if (node == nullptr) return otherwise;
  if (!node->is_boolean()) fail(key, "must be true or false");
  return *node->value<bool>();
}

uint64_t ConfigReader::number(std::string_view key, uint64_t otherwise, uint64_t least, uint64_t most) {
  const toml::node* node = take(key);
  if (node == nullptr) return otherwise;
  const auto wrong = [&]() { fail(key, fmt::format("must be a whole number from {} to {}", least, most)); };
  if (!node->is_integer()) wrong();
  const int64_t value = *node->value<int64_t>();
  if (value < 0 || static_cast<uint64_t>(value) < least || static_cast<uint64_t>(value) > most) wrong();
  return static_cast<uint64_t>(value);
}

double ConfigReader::ratio(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return 0;
  const std::optional<double> value = node->is_number() ? node->value<double>() : std::nullopt;
  // This form of the condition also rejects NaN.
  if (!value || !(*value >= 0 && *value <= 1)) fail(key, "must be a ratio from 0 to 1, such as 0.01");
  return *value;
}

std::vector<uint64_t> ConfigReader::numbers(std::string_view key, uint64_t least, uint64_t most) {
  const toml::node* node = take(key);
  std::vector<uint64_t> values;
  if (node == nullptr) return values;
  const auto wrong = [&]() {
    fail(key, fmt::format("must be a list of whole numbers from {} to {}", least, most));
  };
  const toml::array* array = node->as_array();
  if (array == nullptr) wrong();
  for (const toml::node& element : *array) {
    if (!element.is_integer()) wrong();
    const int64_t value = *element.value<int64_t>();
    if (value < 0 || static_cast<uint64_t>(value) < least || static_cast<uint64_t>(value) > most) wrong();
    values.push_back(static_cast<uint64_t>(value));
  }
  return values;
}

std::string ConfigReader::text(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return {};
  if (!node->is_string()) fail(key, "must be a string in quotes");
  std::string value = *node->value<std::string>();
  if (value.empty()) fail(key, "must not be empty");
  return value;
}

std::string ConfigReader::required_text(std::string_view key, std::string_view like) {
  if (!has(key)) fail(key, fmt::format("is missing; give one, such as \"{}\"", like));
  return text(key);
}

size_t ConfigReader::choice(std::string_view key, std::span<const std::string_view> choices, int otherwise) {
  const std::string list = fmt::format("{}", fmt::join(choices, ", "));
  if (!has(key)) {
    known_.emplace_back(key);
    if (otherwise < 0) fail(key, fmt::format("is missing; give one of {}", list));
    return static_cast<size_t>(otherwise);
  }
  const std::string value = text(key);
  const auto found = std::find(choices.begin(), choices.end(), value);
  if (found == choices.end()) fail(key, fmt::format("\"{}\" is not one of {}", value, list));
  return static_cast<size_t>(found - choices.begin());
}

std::vector<std::string> ConfigReader::texts(std::string_view key) {
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

std::vector<std::string> ConfigReader::text_or_list(std::string_view key) {
  const toml::node* node = table_.get(key);
  if (node == nullptr) {
    known_.emplace_back(key);
    return {};
  }
  if (!node->is_array()) return {text(key)};
  std::vector<std::string> values = texts(key);
  if (values.empty()) fail(key, "must not be empty");
  return values;
}

std::vector<std::string> ConfigReader::required_text_or_list(std::string_view key, std::string_view like) {
  if (!has(key)) fail(key, fmt::format("is missing; give one, such as \"{}\"", like));
  return text_or_list(key);
}

const toml::table* ConfigReader::table(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return nullptr;
  if (!node->is_table()) fail(key, fmt::format("must be a table, [{}]", name_of(key)));
  return node->as_table();
}

const toml::array* ConfigReader::tables(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return nullptr;
  if (!node->is_array_of_tables()) fail(key, fmt::format("must be written as [[{}]]", name_of(key)));
  return node->as_array();
}

template <typename Message>
void ConfigReader::refuse_others(std::span<const std::string_view> keys, Message message) const {
  // The first key in the file, so that errors appear from the top.
  const toml::node* first = nullptr;
  std::string_view name;
  for (const auto& [key, node] : table_) {
    if (std::find(keys.begin(), keys.end(), key.str()) != keys.end()) continue;
    if (first != nullptr && first->source().begin.line <= node.source().begin.line) continue;
    first = &node;
    name = key.str();
  }
  if (first != nullptr) fail(name, message(name));
}

void ConfigReader::finish() const {
  const std::vector<std::string_view> keys(known_.begin(), known_.end());
  refuse_others(keys, [&](std::string_view /*key*/) {
    return fmt::format("unknown key; known here: {}", fmt::join(keys, ", "));
  });
}

}  // namespace faultline::glue
