// SPDX-License-Identifier: BSD-3-Clause
// faultline-run: starts an unmodified verbs program on Faultline devices.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <spdlog/fmt/fmt.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/command_line/command_line.hpp"
#include "apps/run/environment.hpp"
#include "apps/run/find_files.hpp"
#include "apps/run/guards.hpp"
#include "pmd_glue/config/config.hpp"
#include "pmd_glue/trouble/scenario_file.hpp"
#include "pmd_glue/wires/switch_place.hpp"
#include "pmd_glue/wires/wire_request.hpp"

namespace {

using namespace faultline;

// Exit statuses of shells for a command that cannot be run, and for one that is not found.
constexpr int kCannotRun = 126;
constexpr int kNotFound = 127;
constexpr int kBadOption = 2;

struct Options {
  std::string config;
  std::string wire;
  std::string side;
  std::string ip;
  std::string record;
  unsigned record_size = 0;  ///< megabytes; 0: the library's default
  std::string trouble;
  std::string replay;
  std::string journal;
  std::string seed;
  bool share = false;
  bool udp = false;
  bool no_wire_sockets = false;
  bool no_wire_interface = false;
  bool guards = false;
  bool own_guards = false;
  std::vector<std::string> program;
};

int fail(int status, const std::string& line) {
  std::fprintf(stderr, "%s\n", line.c_str());
  return status;
}

/// Returns the text for $FAULTLINE_WIRE; "" and one line in `error` if the options are invalid.
std::string wire_text(const Options& options, std::string& error) {
  std::string text = options.wire;
  if (!options.side.empty()) text += ",side=" + options.side;
  if (!options.ip.empty()) text += ",ip=" + options.ip;
  if (options.share) text += ",share";
  const auto request = glue::parse_wire_request(text, error);
  return request && glue::place_of_wire(request->wire, error) ? text : std::string();
}

bool is_on_or_off(std::string_view text) {
  return text == "on" || text == "off";
}

/// Sets the variables of a recording. The file is created anew by the library, which never overwrites one: an
/// older one is removed. Returns 0 or an errno.
int set_recording(const Options& options) {
  if (options.record.empty()) return 0;
  const std::filesystem::path file = std::filesystem::absolute(options.record);
  struct stat state {};
  if (stat(file.parent_path().c_str(), &state) != 0) return errno;
  if (lstat(file.c_str(), &state) == 0) {
    if (!S_ISREG(state.st_mode)) return EEXIST;
    if (unlink(file.c_str()) != 0) return errno;
  }
  setenv("FAULTLINE_RECORD", file.c_str(), 1);
  if (options.record_size != 0)
    setenv("FAULTLINE_RECORD_SIZE", std::to_string(options.record_size).c_str(), 1);
  return 0;
}

/// Sets the variables of trouble. The journal is created anew, since each run appends to it. Returns "" or
/// one line.
std::string set_trouble(const Options& options) {
  if (options.trouble.empty() && options.replay.empty()) return {};
  const auto whole = [](const std::string& path) { return std::filesystem::absolute(path).string(); };
  try {
    if (!options.trouble.empty()) static_cast<void>(glue::load_scenario(options.trouble));
  } catch (const glue::ConfigError& error) {
    return error.what();
  }
  if (!options.replay.empty() && access(options.replay.c_str(), R_OK) != 0)
    return fmt::format("faultline-run: --replay: {}: {}", options.replay, std::strerror(errno));
  if (options.trouble.empty())
    setenv("FAULTLINE_TROUBLE_REPLAY", whole(options.replay).c_str(), 1);
  else
    setenv("FAULTLINE_TROUBLE", whole(options.trouble).c_str(), 1);
  if (!options.seed.empty()) setenv("FAULTLINE_TROUBLE_SEED", options.seed.c_str(), 1);
  if (options.journal.empty()) return {};
  if (unlink(options.journal.c_str()) != 0 && errno != ENOENT)
    return fmt::format("faultline-run: --journal: {}: {}", options.journal, std::strerror(errno));
  setenv("FAULTLINE_TROUBLE_JOURNAL", whole(options.journal).c_str(), 1);
  return {};
}

int run_program(const Options& options) {
  const std::string directory = run::own_directory();
  const std::string library = run::find_library(directory, FAULTLINE_LIBDIR);
  if (library.empty())
    return fail(1, fmt::format("faultline-run: the library is neither beside {} nor where it is installed",
                               directory));
  run::unset_devices();
  if (!options.config.empty()) {
    std::array<char, 4096> whole{};
    if (realpath(options.config.c_str(), whole.data()) == nullptr)
      return fail(kBadOption,
                  fmt::format("faultline-run: --config: {}: {}", options.config, std::strerror(errno)));
    setenv("FAULTLINE_CONFIG", whole.data(), 1);
  }
  if (!options.wire.empty()) {
    std::string error;
    const std::string text = wire_text(options, error);
    if (text.empty()) return fail(kBadOption, error);
    setenv("FAULTLINE_WIRE", text.c_str(), 1);
    for (const auto& [wanted, variable, option] :
         {std::tuple(options.no_wire_sockets, "FAULTLINE_WIRE_SOCKETS", "--no-wire-sockets"),
          std::tuple(options.no_wire_interface, "FAULTLINE_WIRE_INTERFACE", "--no-wire-interface")}) {
      if (wanted) setenv(variable, "off", 1);
      const char* const value = std::getenv(variable);
      if (value != nullptr && !is_on_or_off(value))
        return fail(
            kBadOption,
            fmt::format("faultline-run: {}: \"{}\" is neither \"on\" nor \"off\"; unset it, or give {}",
                        variable, value, option));
    }
  }
  if (const int error = set_recording(options); error != 0)
    return fail(kBadOption,
                fmt::format("faultline-run: --record: {}: {}", options.record, std::strerror(error)));
  if (const std::string wrong = set_trouble(options); !wrong.empty()) return fail(kBadOption, wrong);
  if (options.udp) setenv("FAULTLINE_UDP", options.ip.empty() ? "default" : options.ip.c_str(), 1);
  run::set_environment(library, directory, options.program.front());

  std::vector<char*> arguments;
  for (const std::string& argument : options.program)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  return fail(errno == ENOENT ? kNotFound : kCannotRun,
              fmt::format("faultline-run: {}: {}", arguments[0], std::strerror(errno)));
}

int start(int argc, char** argv) {
  Options options;
  CommandLine app("Starts a verbs program, as it was shipped, on Faultline devices.", "faultline-run");
  const auto config = app.add("--config", options.config,
                              "a TOML file with the devices; beside --wire, with all of one but its place");
  const auto wire = app.add("--wire", options.wire,
                            "a device on the wire of that name, where programs of this host and user meet");
  const auto side =
      app.add("--side", options.side, "with --wire: a letter; side a has 198.18.0.1, b 198.18.0.2, ...");
  const auto udp = app.add("--udp", options.udp,
                           "a device on this host's own address, which reaches other hosts by UDP sockets");
  const auto ip = app.add("--ip", options.ip,
                          "with --wire: this address of 198.18.0.0/15; with --udp: these addresses of the "
                          "host, with commas between them (default: that of the default route)");
  const auto share =
      app.add("--share", options.share, "with --wire: share the address with others that say so too");
  const auto no_sockets =
      app.add("--no-wire-sockets", options.no_wire_sockets,
              "with --wire: leave addresses of 198.18.0.0/15 in TCP and UDP to the kernel");
  const auto no_interface = app.add("--no-wire-interface", options.no_wire_interface,
                                    "with --wire: do not show the wire among the host's network interfaces");
  const auto record =
      app.add("--record", options.record, "keep a recording of the device in this file, for faultline story");
  constexpr unsigned kMostMegabytes = 4096;
  app.add("--record-size", options.record_size,
          "megabytes of the recording for each core, of which the newest events stay; default: 64")
      .in_range(1U, kMostMegabytes)
      .needs(record);
  const auto trouble =
      app.add("--trouble", options.trouble,
              "a TOML file with faults that the program meets: errors, lost packets, events");
  const auto replay =
      app.add("--replay", options.replay, "a journal whose decisions are made again, and no others");
  app.add("--seed", options.seed, "with --trouble: the seed, instead of the file's")
      .whole_number()
      .needs(trouble);
  app.add("--journal", options.journal,
          "keep the decisions of --trouble or --replay in this file; %p is the process, %n the program");
  replay.excludes(trouble);
  const auto guards = app.add("--guards", options.guards,
                              "print which guards of registered memory a program would have here, and end");
  const auto own_guards = app.add(run::kOwnGuardsOption, options.own_guards).hide();  // not in the help
  app.add_rest("program", options.program, "the program and its arguments");
  side.needs(wire).excludes(ip);
  udp.excludes(wire).excludes(config);
  share.needs(wire);
  no_sockets.needs(wire);
  no_interface.needs(wire);
  own_guards.excludes(guards);
  if (app.parse(argc, argv) != CommandLine::Outcome::parsed) return app.report();
  if (options.own_guards) return run::print_guards();
  if (options.guards) {
    options.program = {run::own_path(), run::kOwnGuardsOption};
    return run_program(options);
  }
  if (options.program.empty()) return app.report_missing("program");
  if (!options.ip.empty() && options.wire.empty() && !options.udp)
    return app.report_missing("--ip: --wire NAME or --udp");
  if (options.config.empty() && options.wire.empty() && !options.udp)
    return app.report_missing("--wire NAME, --udp or --config FILE");
  return run_program(options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return start(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "faultline-run: %s\n", error.what());
    return kCannotRun;
  }
}
