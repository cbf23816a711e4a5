// SPDX-License-Identifier: BSD-3-Clause
// Tests the list of configuration keys: each key is read, and docs/configuration.md lists the same keys.
#include "pmd_glue/config/config_keys.hpp"

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <spdlog/fmt/fmt.h>

#include "tests/unit/glue/config_texts.hpp"

namespace faultline::glue::config_keys_test {
namespace {

/// Returns a minimal file with one more key in the table, of a type that no key has.
std::string with_absurd_key(std::string_view table, std::string_view key) {
  const std::string absurd = fmt::format("{} = 1979-05-27\n", key);
  if (table.empty()) return absurd;
  if (table == "device") return "[[device]]\n" + absurd;
  if (table == "device.port") return with_port(absurd);
  if (table == "device.route") return with_device_key("[[device.route]]\n" + absurd);
  if (table == "device.chaos") return with_chaos(absurd);
  return fmt::format("[{}]\n{}", table, absurd);
}

TEST(ConfigKeys, EachKeyOfTheListIsRead) {
  size_t count = 0;
  for (const ConfigTable& table : config_tables())
    for (const std::string_view key : table.keys) {
      // The tests of the port kinds check which kind reads which key.
      if (table.name == "device.port" && key != "kind") continue;
      const std::string error = error_of(with_absurd_key(table.name, key));
      EXPECT_EQ(error.find("unknown key"), std::string::npos) << table.name << "." << key << ": " << error;
      EXPECT_NE(error, "no error") << table.name << "." << key;
      ++count;
    }
  EXPECT_GT(count, 70U);
}

/// Returns the keys in the tables below a heading "## `[table]`" of docs/configuration.md.
std::map<std::string, std::set<std::string>> keys_in_document() {
  std::map<std::string, std::set<std::string>> keys;
  std::ifstream document(std::string(FAULTLINE_DOCS) + "/configuration.md");
  std::string table;
  for (std::string line; std::getline(document, line);) {
    std::smatch found;
    if (std::regex_search(line, found, std::regex("^## `\\[+([a-z_.]+)\\]+`"))) table = found[1];
    if (std::regex_search(line, found, std::regex("^\\| `([a-z_]+)` \\|"))) keys[table].insert(found[1]);
  }
  return keys;
}

TEST(ConfigKeys, AreThoseOfTheDocument) {
  std::map<std::string, std::set<std::string>> keys;
  for (const ConfigTable& table : config_tables())
    if (!table.name.empty()) keys[std::string(table.name)] = {table.keys.begin(), table.keys.end()};
  // Nested tables have separate headings.
  for (const ConfigTable& table : config_tables()) {
    const size_t dot = table.name.rfind('.');
    if (dot != std::string_view::npos)
      keys[std::string(table.name.substr(0, dot))].erase(std::string(table.name.substr(dot + 1)));
  }
  EXPECT_EQ(keys_in_document(), keys);
}

}  // namespace
}  // namespace faultline::glue::config_keys_test
