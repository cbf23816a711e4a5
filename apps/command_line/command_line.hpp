// SPDX-License-Identifier: BSD-3-Clause
// The options of a program. CLI11 parses them; it is behind one source, since it costs each unit that
// includes it six seconds of CPU time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class Option;
}

namespace faultline {

/// One option, for what else holds of it. Lives as long as its command line.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option& option) : option_(&option) {}
  const CommandOption& needs(const CommandOption& other) const;
  const CommandOption& excludes(const CommandOption& other) const;
  const CommandOption& require() const;
  /// Not in the help.
  const CommandOption& hide() const;
  /// Takes several values, with commas between them.
  const CommandOption& as_list() const;
  const CommandOption& one_of(const std::vector<std::string>& values) const;
  /// Both bounds are allowed. For int, unsigned, uint64_t and double.
  template <typename Value>
  const CommandOption& in_range(Value least, Value most) const;
  const CommandOption& whole_number() const;  ///< from 0 on
  const CommandOption& show_default() const;  ///< in the help: the value that the variable has
  [[nodiscard]] size_t count() const;         ///< how often it was given

 private:
  CLI::Option* option_;
};

class CommandLine {
 public:
  enum class Outcome : uint8_t { parsed, help, mistake };

  /// `program` empty: the help shows the name that the program was started by.
  explicit CommandLine(const std::string& description, const std::string& program = "");
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// `names` is "--long", "-s", or the name of a positional without a hyphen. For bool (a flag), std::string,
  /// int, unsigned numbers, double, vectors of strings, and optional numbers.
  template <typename Value>
  CommandOption add(const std::string& names, Value& value, const std::string& help = "");
  /// The first positional and all that follows it, options too.
  void add_rest(const std::string& name, std::vector<std::string>& values, const std::string& help);

  [[nodiscard]] Outcome parse(int argc, char** argv);
  /// After an outcome that is not `parsed`: prints the help on stdout, or the mistake and where to find the
  /// help on stderr. Returns the exit status: 0 or 2.
  [[nodiscard]] int report() const;
  /// The same for something that the parser does not know to be necessary.
  [[nodiscard]] int report_missing(const std::string& what);
  /// In one line.
  [[nodiscard]] std::string mistake() const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace faultline
