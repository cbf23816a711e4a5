// SPDX-License-Identifier: BSD-3-Clause
#include "apps/command_line/command_line.hpp"

#include <algorithm>
#include <optional>

#include <CLI/CLI.hpp>

namespace faultline {

const CommandOption& CommandOption::needs(const CommandOption& other) const {
  option_->needs(other.option_);
  return *this;
}

const CommandOption& CommandOption::excludes(const CommandOption& other) const {
  option_->excludes(other.option_);
  return *this;
}

const CommandOption& CommandOption::require() const {
  option_->required();
  return *this;
}

const CommandOption& CommandOption::hide() const {
  option_->group("");
  return *this;
}

const CommandOption& CommandOption::as_list() const {
  option_->delimiter(',');
  return *this;
}

const CommandOption& CommandOption::one_of(const std::vector<std::string>& values) const {
  option_->check(CLI::IsMember(values));
  return *this;
}

template <typename Value>
const CommandOption& CommandOption::in_range(Value least, Value most) const {
  option_->check(CLI::Range(least, most));
  return *this;
}
template const CommandOption& CommandOption::in_range(int, int) const;
template const CommandOption& CommandOption::in_range(unsigned, unsigned) const;
template const CommandOption& CommandOption::in_range(uint64_t, uint64_t) const;
template const CommandOption& CommandOption::in_range(double, double) const;

const CommandOption& CommandOption::whole_number() const {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

const CommandOption& CommandOption::show_default() const {
  option_->capture_default_str();
  return *this;
}

size_t CommandOption::count() const {
  return option_->count();
}

struct CommandLine::Parser {
  CLI::App app;
  std::optional<CLI::Error> error;
};

CommandLine::CommandLine(const std::string& description, const std::string& program)
    : parser_(new Parser{.app = CLI::App(description, program), .error = {}}) {}
CommandLine::~CommandLine() = default;

template <typename Value>
CommandOption CommandLine::add(const std::string& names, Value& value, const std::string& help) {
  return CommandOption(*parser_->app.add_option(names, value, help));
}
template <>
CommandOption CommandLine::add(const std::string& names, bool& value, const std::string& help) {
  return CommandOption(*parser_->app.add_flag(names, value, help));
}
template CommandOption CommandLine::add(const std::string&, std::string&, const std::string&);
template CommandOption CommandLine::add(const std::string&, int&, const std::string&);
template CommandOption CommandLine::add(const std::string&, uint8_t&, const std::string&);
template CommandOption CommandLine::add(const std::string&, uint16_t&, const std::string&);
template CommandOption CommandLine::add(const std::string&, unsigned&, const std::string&);
template CommandOption CommandLine::add(const std::string&, uint64_t&, const std::string&);
template CommandOption CommandLine::add(const std::string&, double&, const std::string&);
template CommandOption CommandLine::add(const std::string&, std::vector<std::string>&, const std::string&);
template CommandOption CommandLine::add(const std::string&, std::optional<int>&, const std::string&);
template CommandOption CommandLine::add(const std::string&, std::optional<unsigned>&, const std::string&);
template CommandOption CommandLine::add(const std::string&, std::optional<uint64_t>&, const std::string&);

void CommandLine::add_rest(const std::string& name, std::vector<std::string>& values,
                           const std::string& help) {
  parser_->app.add_option(name, values, help);
  parser_->app.prefix_command();
  parser_->app.positionals_at_end();
}

CommandLine::Outcome CommandLine::parse(int argc, char** argv) {
  try {
    parser_->app.parse(argc, argv);
    return Outcome::parsed;
  } catch (const CLI::Success& asked) {
    parser_->error = asked;
    return Outcome::help;
  } catch (const CLI::ParseError& error) {
    parser_->error = error;
    return Outcome::mistake;
  }
}

int CommandLine::report() const {
  constexpr int kBadOption = 2;
  return parser_->app.exit(*parser_->error) == 0 ? 0 : kBadOption;
}

int CommandLine::report_missing(const std::string& what) {
  parser_->error = CLI::RequiredError(what);
  return report();
}

std::string CommandLine::mistake() const {
  std::string line = parser_->error->what();
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

}  // namespace faultline
