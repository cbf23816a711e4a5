// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/explore.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <poll.h>
#include <spdlog/fmt/fmt.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "apps/faultline/explore/campaign.hpp"
#include "apps/faultline/explore/run/processes.hpp"
#include "apps/faultline/explore/run/run_test.hpp"
#include "apps/run/find_files.hpp"
#include "pmd_glue/config/config.hpp"
#include "pmd_glue/trouble/scenario_file.hpp"
#include "stack/base/exit_status.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::cli {
namespace {

namespace files = std::filesystem;

constexpr int kSignalBase = 128;

int refuse(const std::string& line) {
  std::fprintf(stderr, "faultline explore: %s\n", line.c_str());
  return kUsageExit;
}

/// A folder for the runs, removed at the end. Its path is short: sockets of wires are below it, and sun_path
/// of unix(7) has 108 bytes.
class Scratch {
 public:
  Scratch() {
    char pattern[] = "/tmp/faultline-explore-XXXXXX";
    if (mkdtemp(pattern) != nullptr) path_ = pattern;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) files::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// SIGINT, SIGTERM and SIGHUP as a descriptor that stays readable: nobody reads it before the end.
class EndSignals {
 public:
  EndSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
    fd_ = UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;
  ~EndSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Takes the signal; 0 if there was none.
  [[nodiscard]] int take() const {
    signalfd_siginfo info{};
    return read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_{};
  UniqueFd fd_;
};

/// Fills the programs of the test. Returns one line for a mistake, or "".
std::string describe_test(const ExploreOptions& options, Test& test) {
  test.devices = options.devices;
  const int ways = (options.command.empty() ? 0 : 1) + (options.test_file.empty() ? 0 : 1) +
                   (options.programs.empty() && options.servers.empty() ? 0 : 1);
  if (ways != 1) return "give the test in one way: -- PROGRAM ARGUMENTS, --program COMMAND, or --test FILE";
  std::string error;
  if (!options.test_file.empty()) {
    test.programs = read_test_file(options.test_file, error);
  } else if (!options.command.empty()) {
    test.programs.push_back({options.command});
  } else {
    const auto add = [&](const std::string& command, bool is_awaited) {
      if (!error.empty()) return;
      TestProgram program{split_command(command, error)};
      program.is_awaited = is_awaited;
      if (!test.programs.empty()) program.delay_ms = options.delay_ms;
      test.programs.push_back(std::move(program));
    };
    for (const std::string& command : options.servers) add(command, false);
    for (const std::string& command : options.programs) add(command, true);
  }
  if (!error.empty()) return error;
  if (std::ranges::none_of(test.programs, &TestProgram::is_awaited))
    return "all programs are servers: give one that ends, as --program, or with wait = true";
  if (!options.side.empty() || !options.ip.empty()) {
    if (test.programs.size() != 1)
      return "--side and --ip are for one program; a file of --test has them for each";
    test.programs[0].side = options.side;
    test.programs[0].ip = options.ip;
  }
  assign_sides(test);
  return "";
}

/// Reads the scenario's name. Returns one line for a mistake, or "".
std::string read_scenario(const std::string& path, std::string& name) {
  try {
    name = glue::load_scenario(path).name;
  } catch (const glue::ConfigError& error) {
    // Its line begins with the command's name, as refuse() has it.
    const std::string_view line = error.what();
    constexpr std::string_view kName = "faultline: ";
    return std::string(line.substr(line.starts_with(kName) ? kName.size() : 0));
  }
  return "";
}

/// Returns one line if the folder cannot be had or written to, or "".
std::string make_out(const std::string& path) {
  std::error_code error;
  files::create_directories(path, error);
  if (error) return fmt::format("--out: {}: {}", path, error.message());
  if (access(path.c_str(), W_OK) != 0) return fmt::format("--out: {}: {}", path, std::strerror(errno));
  return "";
}

RunPlan plan_of(const ExploreOptions& options, int stop_fd) {
  RunPlan plan;
  plan.scenario = files::absolute(options.trouble);
  plan.timeout = std::chrono::milliseconds(static_cast<int64_t>(options.timeout_s * 1000));
  plan.pass = options.pass;
  plan.runner = run::own_directory() + "/faultline-run";
  plan.stop_fd = stop_fd;
  return plan;
}

std::string last_line_of(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text.substr(text.rfind('\n') + 1));
}

/// Makes a network for each of several jobs on a wire. Where that is barred, they share this process's.
void make_networks(const ExploreOptions& options, Campaign& campaign) {
  campaign.networks.resize(campaign.jobs);
  if (campaign.jobs == 1 || options.devices.wire.empty() || options.has_shared_network) return;
  for (OwnNetwork& network : campaign.networks) {
    const int error = make_own_network(network);
    if (error == 0) continue;
    std::fprintf(stderr,
                 "faultline explore: no network namespace for each job (%s): TCP ports of the programs must "
                 "differ by $EXPLORE_JOB, or give --jobs 1\n",
                 std::strerror(error));
    campaign.networks.clear();
    campaign.networks.resize(campaign.jobs);
    return;
  }
}

/// The test must pass without trouble, or its failures say nothing. Returns one line if it does not, or "".
std::string try_without_trouble(const RunPlan& plan, const std::string& folder, const NetworkFds& network) {
  const Outcome outcome = run_test(plan, {}, folder, 0, network);
  if (outcome.is_stopped) return "";
  if (!outcome.mistake.empty()) return outcome.mistake;
  if (outcome.verdict.failure == Failure::none) return "";
  const std::string line = last_line_of(read_text(file_of(folder, "stderr", outcome.verdict.program)));
  return fmt::format("the test fails without any trouble: {}{}", outcome.verdict.text,
                     line.empty() ? "; mend the test first" : "; its last line: " + line);
}

}  // namespace

int run_explore(const ExploreOptions& options) {
  Campaign campaign;
  const EndSignals signals;
  campaign.plan = plan_of(options, signals.fd());
  if (const std::string wrong = describe_test(options, campaign.plan.test); !wrong.empty())
    return refuse(wrong);
  if (const std::string wrong = read_scenario(options.trouble, campaign.scenario_name); !wrong.empty())
    return refuse(wrong);
  if (const std::string wrong = make_out(options.out); !wrong.empty()) return refuse(wrong);
  const Scratch scratch;
  if (scratch.path().empty()) return refuse(fmt::format("/tmp: {}", std::strerror(errno)));
  adopt_orphans();
  campaign.jobs = static_cast<unsigned>(std::min<uint64_t>(options.jobs, options.runs));
  make_networks(options, campaign);
  if (const std::string wrong =
          try_without_trouble(campaign.plan, scratch.path() + "/first", campaign.networks[0].fds());
      !wrong.empty())
    return refuse(wrong);
  campaign.plan.allowed.statuses.insert(campaign.plan.allowed.statuses.end(), options.accepted.begin(),
                                        options.accepted.end());
  campaign.plan.allowed.any_status = options.any_status;
  campaign.first_seed = options.first_seed;
  campaign.runs = options.runs;
  campaign.shrink_runs = options.shrink_runs;
  campaign.out = options.out;
  campaign.scratch = scratch.path();
  const CampaignResult result = explore_seeds(campaign);
  if (!result.mistake.empty()) return refuse(result.mistake);
  if (const int signal = signals.take(); signal != 0) return kSignalBase + signal;
  return result.failures == 0 ? 0 : 1;
}

}  // namespace faultline::cli
