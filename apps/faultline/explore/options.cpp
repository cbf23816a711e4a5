// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/explore.hpp"

namespace faultline::cli {

void add_explore_options(CLI::App& command, ExploreOptions& options) {
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

}  // namespace faultline::cli
