// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/run/test_description.hpp"

#include <cstdint>
#include <stdexcept>
#include <string_view>

#include <spdlog/fmt/fmt.h>
#include <wordexp.h>

#include "stack/toml/checked_table.hpp"

namespace faultline::cli {
namespace {

constexpr std::string_view kFileKeys[] = {"program"};
constexpr std::string_view kProgramKeys[] = {"command", "side", "ip", "delay_ms", "listens", "wait"};
constexpr uint64_t kMostDelay_ms = 600'000;
constexpr uint64_t kMostPort = 65535;

std::vector<std::string> read_words(CheckedTable& table) {
  table.require("command", "give a program and its arguments");
  std::vector<std::string> words = table.text_or_list("command");
  if (!table.has_list("command")) {
    std::string error;
    words = split_command(words.front(), error);
    if (!error.empty()) table.fail("command", error);
  } else if (words.front().empty()) {
    table.fail("command", "must begin with the name of a program");
  }
  return words;
}

TestProgram read_program(CheckedTable& table) {
  table.allow_only(kProgramKeys);
  TestProgram program;
  program.words = read_words(table);
  program.side = table.text("side");
  program.ip = table.text("ip");
  table.read("delay_ms", program.delay_ms, 0, kMostDelay_ms);
  table.read("listens", program.listens, 0, kMostPort);
  table.read("wait", program.is_awaited);
  return program;
}

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
  try {
    const CheckedFile file{"", path, raise_as<std::runtime_error>};
    const toml::table table = file.parse();
    CheckedTable root(file, &table);
    root.allow_only(kFileKeys);
    root.require("program", "add a table [[program]] for each program");
    std::vector<TestProgram> programs;
    for (CheckedTable& program : root.tables("program")) programs.push_back(read_program(program));
    return programs;
  } catch (const std::runtime_error& wrong) {
    error = wrong.what();
    return {};
  }
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
