// SPDX-License-Identifier: BSD-3-Clause
// What a test runs: its programs, and the devices that they get.
#pragma once

#include <string>
#include <vector>

namespace faultline::cli {

struct TestProgram {
  std::vector<std::string> words = {};  ///< the program and its arguments
  std::string side = {};                ///< of the wire; "" for none
  std::string ip = {};
  unsigned delay_ms = 0;   ///< after the start of the program before it
  unsigned listens = 0;    ///< the next program starts when a socket listens on this TCP port; 0: at once
  bool is_awaited = true;  ///< false: a server, which is ended after the others
};

/// The options of `faultline run` for all programs. Without a wire, UDP or a file a program starts as it is.
struct TestDevices {
  std::string wire;
  std::string config;
  bool udp = false;
  bool share = false;

  [[nodiscard]] bool are_given() const { return udp || !wire.empty() || !config.empty(); }
};

struct Test {
  TestDevices devices;
  std::vector<TestProgram> programs;
};

/// Splits a command as a shell does: quotes, variables, "~", patterns; no commands in it. Returns no word and
/// one line in `error` for a mistake.
[[nodiscard]] std::vector<std::string> split_command(const std::string& command, std::string& error);

/// Reads the programs of a TOML file with tables [[program]]. Returns none and one line in `error` for a
/// mistake.
[[nodiscard]] std::vector<TestProgram> read_test_file(const std::string& path, std::string& error);

/// Gives programs without a side or an address the sides a, b, ... of the wire if there are several of them.
void assign_sides(Test& test);

/// Returns the words that start `program`: those of `runner` (the path of faultline-run) with its options
/// first.
[[nodiscard]] std::vector<std::string> start_words(const Test& test, const TestProgram& program,
                                                   const std::string& runner);

}  // namespace faultline::cli
