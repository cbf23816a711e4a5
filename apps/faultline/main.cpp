// SPDX-License-Identifier: BSD-3-Clause
// faultline: one command for the programs of Faultline, for what this machine is, and for what it lacks.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "apps/faultline/devices.hpp"
#include "apps/faultline/doctor.hpp"
#include "apps/faultline/explore/explore.hpp"
#include "apps/faultline/export/export.hpp"
#include "apps/faultline/info.hpp"
#include "apps/faultline/probe.hpp"
#include "apps/faultline/start_program.hpp"
#include "apps/faultline/story/story.hpp"
#include "apps/faultline/top/top.hpp"
#include "apps/faultline/trouble.hpp"
#include "pmd_glue/config/config.hpp"
#include "stack/base/exit_status.hpp"

namespace {

using namespace faultline;

struct Program {
  const char* command;
  const char* file;
  const char* help;
};

constexpr std::array kPrograms{
    Program{"run", "faultline-run", "start a verbs program on Faultline devices"},
    Program{"perf", "faultline-perf", "measure RDMA between two devices"},
    Program{"sim", "faultline-sim", "simulate a fabric of many hosts with the transport of real wires"},
    Program{"switch", "faultline-switch", "the wire that programs of one host meet on"},
};

int refuse(std::string line) {
  std::ranges::replace(line, '\n', ' ');
  std::fprintf(stderr, "faultline: %s; faultline --help lists the commands\n", line.c_str());
  return kUsageExit;
}

/// `faultline replay JOURNAL ...` is `faultline-run --replay JOURNAL ...`.
int replay(int argc, char** argv) {
  if (argc < 3 || argv[2][0] == '-') {
    const bool is_help = argc == 3 && std::string_view(argv[2]) == "--help";
    std::fprintf(is_help ? stdout : stderr,
                 "usage: faultline replay JOURNAL [OPTIONS OF faultline run] PROGRAM [ARGUMENT...]\n");
    return is_help ? 0 : kUsageExit;
  }
  std::string option = "--replay";
  std::vector<char*> arguments{argv[1], option.data()};
  arguments.insert(arguments.end(), argv + 2, argv + argc);
  arguments.push_back(nullptr);
  return cli::execute("faultline-run", arguments.data());
}

int start(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  // The arguments of these programs are theirs.
  for (const Program& program : kPrograms)
    if (command == program.command) return cli::execute(program.file, argv + 1);
  if (command == "replay") return replay(argc, argv);
  if (command == cli::kProbeOption && argc == 3) return cli::run_probe(argv[2]);

  CLI::App app("RDMA without the hardware. Each command has a --help.", "faultline");
  app.set_version_flag("--version", FAULTLINE_VERSION);
  app.require_subcommand(1);
  for (const Program& program : kPrograms)
    app.add_subcommand(program.command, std::string(program.help) + ": " + program.file);
  app.add_subcommand("replay", "start a program and make the decisions of a journal of --trouble again");
  cli::DeviceOptions devices;
  bool as_json = false;
  CLI::App* const info =
      app.add_subcommand("info", "print versions, the machine, its limits and devices, for a bug report");
  CLI::App* const doctor = app.add_subcommand(
      "doctor",
      "print what is missing or limited here, what is lost by it and what mends it; exit status 0 if verbs "
      "programs run, 1 if not");
  cli::ExportOptions exported;
  CLI::App* const exporter = app.add_subcommand(
      "export",
      "print the counters of this user's programs for Prometheus, write them to a file or serve them");
  cli::add_export_options(*exporter, exported);
  cli::TopOptions watched;
  CLI::App* const top = app.add_subcommand(
      "top", "show what the devices of this user's programs do: rates, QPs, regions, page faults");
  cli::add_top_options(*top, watched);
  cli::StoryOptions told;
  CLI::App* const story = app.add_subcommand(
      "story", "make one HTML page of a recording or a packet capture: connections, faults, stalls");
  cli::add_story_options(*story, told);
  cli::TroubleOptions commanded;
  CLI::App* const trouble =
      app.add_subcommand("trouble", "give a command to the scenarios of this user's programs");
  trouble->add_option("name", commanded.name, "as in `when = { command = \"NAME\" }`")
      ->required()
      ->type_name("NAME");
  trouble->add_flag("--end", commanded.ends, "end the command");
  trouble->add_option("--pid", commanded.pid, "only this process")->type_name("PID");
  cli::ExploreOptions explored;
  CLI::App* const explore = app.add_subcommand(
      "explore", "run a test under many seeds of trouble, and find the fewest decisions that make it fail");
  cli::add_explore_options(*explore, explored);
  for (CLI::App* const one : {info, doctor}) {
    cli::add_device_options(*one, devices);
    one->add_flag("--json", as_json, "print JSON");
  }
  try {
    app.parse(argc, argv);
    if (exporter->parsed()) return cli::run_export(exported);
    if (top->parsed()) return cli::run_top(watched);
    if (story->parsed()) return cli::run_story(told);
    if (trouble->parsed()) return cli::run_trouble(commanded);
    if (explore->parsed()) return cli::run_explore(explored);
    const cli::DeviceChoice choice = cli::choose_devices(devices);
    return info->parsed() ? cli::run_info(choice, as_json) : cli::run_doctor(choice, as_json);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return refuse(error.what());
  } catch (const glue::ConfigError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kUsageExit;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return start(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "faultline: %s\n", error.what());
    return 1;
  }
}
