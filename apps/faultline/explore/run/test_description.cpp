// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/run/test_description.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

#include <spdlog/fmt/fmt.h>
#include <toml++/toml.h>
#include <wordexp.h>

namespace faultline::cli {
namespace {

constexpr std::array<std::string_view, 6> kKeys{"command", "side", "ip", "delay_ms", "listens", "wait"};
constexpr int64_t kMostDelay_ms = 600'000;
constexpr int64_t kMostPort = 65535;

/// Reads one table. Its functions write the first mistake to `error`.
class Reader {
 public:
  Reader(const toml::table& table, std::string& error) : table_(table), error_(error) {}

  [[nodiscard]] TestProgram read() {
    for (const auto& [key, value] : table_)
      if (std::ranges::find(kKeys, std::string_view(key.str())) == kKeys.end())
        fail(fmt::format("the key \"{}\" is unknown", key.str()));
    TestProgram program;
    program.words = words();
    program.side = text("side");
    program.ip = text("ip");
    program.delay_ms = number("delay_ms", kMostDelay_ms);
    program.listens = number("listens", kMostPort);
    if (const toml::node* const wait = table_.get("wait")) {
      if (wait->is_boolean())
        program.is_awaited = wait->value_or(true);
      else
        fail("\"wait\" is neither true nor false");
    }
    return program;
  }

 private:
  void fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }
  std::vector<std::string> words() {
    const toml::node* const command = table_.get("command");
    if (command == nullptr) return fail("\"command\" is missing"), std::vector<std::string>();
    if (const auto line = command->value_exact<std::string>()) {
      std::string error;
      std::vector<std::string> split = split_command(*line, error);
      if (!error.empty()) fail(error);
      return split;
    }
    std::vector<std::string> words;
    if (const toml::array* const array = command->as_array())
      for (const toml::node& word : *array) words.push_back(word.value_exact<std::string>().value_or(""));
    if (words.empty() || words.front().empty()) fail("\"command\" is neither a text nor an array of texts");
    return words;
  }
  std::string text(const char* key) {
    const toml::node* const node = table_.get(key);
    if (node != nullptr && !node->is_string()) fail(fmt::format("\"{}\" is not a text", key));
    return node == nullptr ? "" : node->value_or(std::string());
  }
  unsigned number(const char* key, int64_t most) {
    const toml::node* const node = table_.get(key);
    if (node == nullptr) return 0;
    const int64_t value = node->value_exact<int64_t>().value_or(-1);
    if (value < 0 || value > most) {
      fail(fmt::format("\"{}\" is not a number from 0 to {}", key, most));
      return 0;
    }
    return static_cast<unsigned>(value);
  }

  const toml::table& table_;
  std::string& error_;
};

}  // namespace

std::vector<std::string> split_command(const std::string& command, std::string& error) {
  wordexp_t expanded{};
  const int failed = wordexp(command.c_str(), &expanded, WRDE_NOCMD | WRDE_UNDEF);
  std::vector<std::string> words;
  if (failed == 0) words.assign(expanded.we_wordv, expanded.we_wordv + expanded.we_wordc);
  if (failed == 0 || failed == WRDE_NOSPACE) wordfree(&expanded);
  if (failed == WRDE_BADVAL)
    error =
        fmt::format("{}: a variable is not set; put it in single quotes for a shell of the command", command);
  else if (failed != 0)
    error = fmt::format("{}: cannot be split into words; give a shell's syntax as sh -c '...'", command);
  else if (words.empty())
    error = "a command is empty";
  return words;
}

std::vector<TestProgram> read_test_file(const std::string& path, std::string& error) {
  std::vector<TestProgram> programs;
  try {
    const toml::table table = toml::parse_file(path);
    for (const auto& [key, value] : table)
      if (key.str() != "program" || !value.is_array_of_tables())
        error = fmt::format("{}: \"{}\" is not a table [[program]]", path, key.str());
    const toml::array* const all = table["program"].as_array();
    if (all == nullptr && error.empty()) error = path + ": it has no table [[program]]";
    if (all == nullptr || !error.empty()) return {};
    for (size_t i = 0; error.empty() && i < all->size(); ++i) {
      std::string wrong;
      programs.push_back(Reader(*all->get(i)->as_table(), wrong).read());
      if (!wrong.empty()) error = fmt::format("{}: program {}: {}", path, i, wrong);
    }
  } catch (const toml::parse_error& wrong) {
    std::ostringstream where;
    where << wrong.source().begin.line;
    error = fmt::format("{}: line {}: {}", path, where.str(), wrong.description());
  }
  if (!error.empty()) programs.clear();
  return programs;
}

void assign_sides(Test& test) {
  if (test.devices.wire.empty() || test.devices.share || test.programs.size() < 2) return;
  constexpr size_t kLetters = 26;
  for (size_t i = 0; i < test.programs.size() && i < kLetters; ++i) {
    TestProgram& program = test.programs[i];
    if (program.side.empty() && program.ip.empty()) program.side = static_cast<char>('a' + i);
  }
}

std::vector<std::string> start_words(const Test& test, const TestProgram& program,
                                     const std::string& runner) {
  const TestDevices& devices = test.devices;
  std::vector<std::string> words;
  const auto add = [&words](std::string option, const std::string& value) {
    if (value.empty()) return;
    words.push_back(std::move(option));
    words.push_back(value);
  };
  if (devices.are_given()) words.push_back(runner);
  add("--wire", devices.wire);
  add("--config", devices.config);
  if (devices.udp) words.emplace_back("--udp");
  if (devices.share) words.emplace_back("--share");
  if (devices.are_given()) {
    add("--side", program.side);
    add("--ip", program.ip);
  }
  words.insert(words.end(), program.words.begin(), program.words.end());
  return words;
}

}  // namespace faultline::cli
