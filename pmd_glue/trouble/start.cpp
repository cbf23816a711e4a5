// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/trouble/start.hpp"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include "pmd_glue/config/config.hpp"
#include "pmd_glue/trouble/scenario_file.hpp"
#include "stack/base/clock.hpp"
#include "stack/base/unique_fd.hpp"
#include "stack/trouble/director.hpp"
#include "stack/trouble/journal.hpp"

namespace faultline::glue {
namespace {

std::string program_name() {
  return program_invocation_short_name;
}

std::string with_names(std::string path) {
  const auto replace = [&path](std::string_view mark, const std::string& value) {
    for (size_t at = path.find(mark); at != std::string::npos; at = path.find(mark, at + value.size()))
      path.replace(at, mark.size(), value);
  };
  replace("%p", std::to_string(getpid()));
  replace("%n", program_name());
  return path;
}

trouble::Scenario load_replay(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw ConfigError(fmt::format("faultline: {}: the journal cannot be read: does the file exist?", path));
  trouble::Scenario scenario;
  if (const std::string wrong = trouble::read_journal(text.str(), scenario); !wrong.empty())
    throw ConfigError(
        fmt::format("faultline: {}: {}: is it a journal of faultline-run --journal?", path, wrong));
  return scenario;
}

void set_seed(trouble::Scenario& scenario) {
  const char* const text = secure_getenv("FAULTLINE_TROUBLE_SEED");
  if (text == nullptr) return;
  const char* const end = text + std::strlen(text);
  if (const auto [stop, error] = std::from_chars(text, end, scenario.seed);
      error != std::errc() || stop != end)
    throw ConfigError(fmt::format("faultline: FAULTLINE_TROUBLE_SEED: \"{}\" is not a whole number", text));
}

/// One write() for each line: several processes may share a journal. The descriptor stays open, since the
/// director is never destroyed.
trouble::Director::Journal open_journal(const trouble::Scenario& scenario) {
  const char* const wanted = secure_getenv("FAULTLINE_TROUBLE_JOURNAL");
  if (wanted == nullptr) return {};
  const std::string path = with_names(wanted);
  constexpr mode_t kMode = 0644;
  auto file =
      std::make_shared<UniqueFd>(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kMode));
  if (!*file)
    throw ConfigError(
        fmt::format("faultline: {}: the journal cannot be written: {}", path, std::strerror(errno)));
  const auto write_line = [file](const std::string& line) {
    const std::string whole = line + '\n';
    static_cast<void>(!write(file->get(), whole.data(), whole.size()));
  };
  write_line(trouble::header_line(scenario, program_name()));
  return write_line;
}

}  // namespace

void start_trouble() {
  if (trouble::director() != nullptr) return;
  const char* const replay = secure_getenv("FAULTLINE_TROUBLE_REPLAY");
  const char* const path = secure_getenv("FAULTLINE_TROUBLE");
  if (replay == nullptr && path == nullptr) return;
  trouble::Scenario scenario = replay != nullptr ? load_replay(replay) : load_scenario(path);
  if (replay == nullptr) set_seed(scenario);
  trouble::Director::Journal journal = open_journal(scenario);
  // Never destroyed: programs exit with devices open.
  trouble::set_director(new trouble::Director(std::move(scenario), monotonic_ns, std::move(journal)));
}

}  // namespace faultline::glue
