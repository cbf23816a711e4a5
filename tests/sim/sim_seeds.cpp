// SPDX-License-Identifier: BSD-3-Clause
// Runs seeds of simulated fabrics. A failing seed is printed and can be run alone with --seed.
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include <unistd.h>

#include "apps/command_line/command_line.hpp"
#include "tests/sim/flows/scenario.hpp"

namespace {

using faultline::sim::run_scenario;
using faultline::sim::ScenarioOptions;
using faultline::sim::ScenarioResult;

thread_local uint64_t running_seed = 0;

/// Prints the current seed before an assertion or a fault in the core ends the process.
extern "C" void on_fatal(int signal) {
  std::array<char, 64> text{};
  const int length = std::snprintf(text.data(), text.size(), "seed %llu: signal %d\n",
                                   static_cast<unsigned long long>(running_seed), signal);
  if (write(STDERR_FILENO, text.data(), static_cast<size_t>(length)) < 0) std::_Exit(3);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// Runs the seed and, with `twice`, once more: both runs must be equal.
ScenarioResult run_seed(uint64_t seed, ScenarioOptions options, bool twice) {
  options.with_digest |= twice;
  ScenarioResult result = run_scenario(seed, options);
  if (!twice || !result.passed || run_scenario(seed, options).digest == result.digest) return result;
  result.passed = false;
  result.error = "two runs of the seed differ";
  return result;
}

void print_failure(uint64_t seed, const ScenarioResult& result) {
  std::printf("seed %llu FAILED: %s\n  %s\n%s", static_cast<unsigned long long>(seed), result.error.c_str(),
              result.setting.c_str(), result.trace.c_str());
  std::printf("again: scripts/simulate --seed %llu --trace\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
}

int run_one(uint64_t seed, bool with_trace, const std::string& pcap_path) {
  ScenarioOptions options;
  options.with_trace = with_trace;
  options.pcap_path = pcap_path;
  options.with_digest = true;
  running_seed = seed;
  const ScenarioResult result = run_scenario(seed, options);
  if (!result.passed) {
    print_failure(seed, result);
    return 1;
  }
  std::printf("%s", result.trace.c_str());
  std::printf("seed %llu passed: %s\n  %llu packets in %.3f ms, digest %016llx\n",
              static_cast<unsigned long long>(seed), result.setting.c_str(),
              static_cast<unsigned long long>(result.packets), static_cast<double>(result.virtual_ns) / 1e6,
              static_cast<unsigned long long>(result.digest));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t seeds = 2000, soak_seeds = 0, first = 1, seed = 0, stop_after = 5;
  unsigned jobs = 1;
  bool trace = false, twice = false;
  std::string pcap_path;
  faultline::CommandLine app("Simulated fabrics by seed.");
  app.add("--seeds", seeds, "how many seeds to run");
  app.add("--soak-seeds", soak_seeds, "how many with FAULTLINE_SOAK in the environment");
  app.add("--first", first,
          "the first of them; from 1000000000 on programs change their mappings, "
          "from 2000000000 on there are 3 to 16 hosts");
  app.add("--jobs", jobs, "threads").in_range(1, 64);
  app.add("--stop-after", stop_after, "failures after which to give up");
  const auto one = app.add("--seed", seed, "run this seed alone");
  app.add("--twice", twice, "run each seed twice: both runs must be equal");
  app.add("--trace", trace, "print its packets");
  app.add("--pcap", pcap_path, "write its packets to this file").needs(one);
  if (app.parse(argc, argv) != faultline::CommandLine::Outcome::parsed) return app.report();
  if (soak_seeds != 0 && std::getenv("FAULTLINE_SOAK") != nullptr) seeds = soak_seeds;
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, on_fatal);
  if (one.count() != 0) return run_one(seed, trace, pcap_path);

  std::atomic<uint64_t> next{first}, failures{0}, packets{0}, retransmissions{0}, timeouts{0}, faults{0},
      rnr{0};
  std::mutex printing;
  const auto work = [&] {
    while (failures < stop_after) {
      const uint64_t mine = next.fetch_add(1);
      if (mine >= first + seeds) return;
      running_seed = mine;
      const ScenarioResult result = run_seed(mine, {}, twice);
      packets += result.packets;
      retransmissions += result.retransmissions;
      timeouts += result.timeouts;
      faults += result.faults;
      rnr += result.rnr_naks;
      if (result.passed) continue;
      ++failures;
      const std::scoped_lock lock(printing);
      print_failure(mine, result);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  std::printf(
      "%llu seeds from %llu: %llu failed; %llu packets, %llu retransmitted, %llu time-outs, %llu faults, "
      "%llu RNR NAKs\n",
      static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(first),
      static_cast<unsigned long long>(failures), static_cast<unsigned long long>(packets),
      static_cast<unsigned long long>(retransmissions), static_cast<unsigned long long>(timeouts),
      static_cast<unsigned long long>(faults), static_cast<unsigned long long>(rnr));
  return failures == 0 ? 0 : 1;
}
