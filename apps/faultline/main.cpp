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

// The options of the commands are here and not beside what the commands do: CLI11 costs a compiler six
// seconds of each library that includes it.

void add_device_options(CLI::App& command, cli::DeviceOptions& options) {
  auto* const config = command.add_option("--config", options.config, "the devices of this TOML file");
  auto* const wire = command.add_option("--wire", options.wire, "a device on this wire")->excludes(config);
  auto* const udp = command.add_flag("--udp", options.udp, "a device on this host's own address")
                        ->excludes(config)
                        ->excludes(wire);
  command.add_option("--ip", options.ip, "with --udp: these addresses of the host, with commas between them")
      ->needs(udp);
}

void add_export_options(CLI::App& command, cli::ExportOptions& options) {
  auto* const listen =
      command.add_option("--prometheus", options.listen,
                         "serve the metrics by HTTP at this port of 127.0.0.1, or at ADDRESS:PORT");
  listen->type_name("[ADDRESS:]PORT");
  auto* const file =
      command.add_option("--textfile", options.textfile,
                         "write the metrics to this file, for node_exporter's textfile collector");
  file->type_name("FILE")->excludes(listen);
  command
      .add_option("--sysfs", options.sysfs,
                  "write the devices to this folder in the shape of /sys, for node_exporter's --path.sysfs")
      ->type_name("FOLDER")
      ->excludes(listen)
      ->excludes(file);
  constexpr unsigned kMostSeconds = 86400;
  command.add_option("--seconds", options.seconds, "write again after so many seconds, until a signal")
      ->check(CLI::Range(1U, kMostSeconds))
      ->excludes(listen);
}

void add_top_options(CLI::App& command, cli::TopOptions& options) {
  command.add_flag("--once", options.once, "print the state once, with rates over --interval, and end");
  command.add_flag("--json", options.as_json, "print it as JSON, once");
  command.add_flag("--post-mortem", options.post_mortem,
                   "print the last state of programs that ended without closing their devices");
  command.add_option("--device", options.device, "only devices of this name")->type_name("NAME");
  command.add_option("--pid", options.pid, "only devices of this process")->type_name("PID");
  constexpr double kLeastSeconds = 0.1;
  constexpr double kMostSeconds = 60;
  command.add_option("--interval", options.seconds, "seconds between two looks; default: 1")
      ->type_name("SECONDS")
      ->check(CLI::Range(kLeastSeconds, kMostSeconds));
}

void add_story_options(CLI::App& command, cli::StoryOptions& options) {
  command.add_option("file", options.file, "a recording of faultline run --record, or a pcapng or pcap file")
      ->required();
  command.add_option("-o,--output", options.output, "the page; default: FILE.html")->type_name("PAGE");
  command.add_flag("--json", options.as_json,
                   "print connections, counts, findings and tables as JSON; no page");
}

void add_trouble_options(CLI::App& command, cli::TroubleOptions& options) {
  command.add_option("name", options.name, "as in `when = { command = \"NAME\" }`")
      ->required()
      ->type_name("NAME");
  command.add_flag("--end", options.ends, "end the command");
  command.add_option("--pid", options.pid, "only this process")->type_name("PID");
}

void add_explore_options(CLI::App& command, cli::ExploreOptions& options) {
  constexpr unsigned kMostJobs = 256;
  constexpr unsigned kMostDelay_ms = 600'000;
  command.add_option("--trouble", options.trouble, "the scenario: a TOML file with rules")
      ->type_name("SCENARIO")
      ->required();
  command.add_option("--runs", options.runs, "number of seeds; default: 100")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command.add_option("--jobs", options.jobs, "runs at the same time; default: 1")
      ->type_name("J")
      ->check(CLI::Range(1U, kMostJobs));
  command.add_option("--seed", options.first_seed, "the first seed; default: 1")->type_name("FIRST");
  command.add_option("--timeout", options.timeout_s, "seconds after which a run is a hang; default: 30")
      ->type_name("S")
      ->check(CLI::Range(0.01, 86400.0));
  command
      .add_option("--pass", options.pass,
                  "a shell's command that checks the output of a run: files $EXPLORE_STDOUT_0, ...")
      ->type_name("CMD");
  command
      .add_option("--accept", options.accepted, "an exit status that is no failure under trouble, beside 0")
      ->type_name("STATUS")
      ->check(CLI::Range(0, 255))
      ->expected(1)
      ->take_all();
  command.add_flag(
      "--any-status", options.any_status,
      "no exit status is a failure under trouble: only signals, hangs, sanitizer reports and wrong "
      "output are");
  command.add_option("--out", options.out, "the folder of results; default: faultline-explore")
      ->type_name("FOLDER");
  command
      .add_option("--shrink-runs", options.shrink_runs,
                  "replays for the fewest decisions of one seed, at most; default: 200")
      ->type_name("N");
  auto* const wire = command.add_option("--wire", options.devices.wire,
                                        "a device on the wire of that name; each run has a wire of its own");
  auto* const side = command.add_option("--side", options.side, "with --wire and one program: its letter");
  auto* const ip = command.add_option("--ip", options.ip, "with --wire and one program: its address");
  auto* const share = command.add_flag("--share", options.devices.share,
                                       "with --wire: all programs share one address, as the ranks of MPI");
  auto* const udp = command.add_flag("--udp", options.devices.udp, "a device on this host's own address");
  command.add_option("--config", options.devices.config, "a TOML file with the devices")->type_name("FILE");
  command.add_flag("--shared-network", options.has_shared_network,
                   "with --jobs: no network namespace for each job; TCP ports must differ by $EXPLORE_JOB");
  auto* const server = command.add_option(
      "--server", options.servers, "a server of the test, which is ended after the programs; repeatable");
  auto* const program =
      command.add_option("--program", options.programs, "a program of the test; repeatable");
  for (auto* const one : {server, program}) one->type_name("COMMAND")->expected(1)->take_all();
  command
      .add_option("--delay", options.delay_ms, "milliseconds between the starts of two programs; default: 0")
      ->type_name("MS")
      ->check(CLI::Range(0U, kMostDelay_ms));
  auto* const file =
      command.add_option("--test", options.test_file, "a TOML file with the programs of the test")
          ->type_name("FILE");
  command.add_option("command", options.command, "the program and its arguments");
  side->needs(wire)->excludes(ip);
  ip->needs(wire);
  share->needs(wire);
  udp->excludes(wire);
  file->excludes(program)->excludes(server);
  command.positionals_at_end();
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
  add_export_options(*exporter, exported);
  cli::TopOptions watched;
  CLI::App* const top = app.add_subcommand(
      "top", "show what the devices of this user's programs do: rates, QPs, regions, page faults");
  add_top_options(*top, watched);
  cli::StoryOptions told;
  CLI::App* const story = app.add_subcommand(
      "story", "make one HTML page of a recording or a packet capture: connections, faults, stalls");
  add_story_options(*story, told);
  cli::TroubleOptions commanded;
  CLI::App* const trouble =
      app.add_subcommand("trouble", "give a command to the scenarios of this user's programs");
  add_trouble_options(*trouble, commanded);
  cli::ExploreOptions explored;
  CLI::App* const explore = app.add_subcommand(
      "explore", "run a test under many seeds of trouble, and find the fewest decisions that make it fail");
  add_explore_options(*explore, explored);
  for (CLI::App* const one : {info, doctor}) {
    add_device_options(*one, devices);
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
