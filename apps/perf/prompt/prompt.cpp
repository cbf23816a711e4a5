// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/prompt/prompt.hpp"

#include <cstdio>
#include <exception>

#include "apps/perf/prompt/commands.hpp"
#include "apps/perf/prompt/line_input.hpp"

namespace faultline::perf {

namespace {

constexpr int kRunFailed = 1;
constexpr int kCommandFailed = 2;

/// Does one step. Returns false and prints a line if it fails.
template <typename Step>
bool done(const Step& step) {
  bool right = true;
  try {
    step();
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "faultline-perf: %s\n", error.what());
    right = false;
  }
  std::fflush(stdout);
  return right;
}

}  // namespace

int run_prompt(ClientSession& session) {
  Bench bench(session);
  LineInput input("faultline> ", candidates_after);
  bench.on_terminal = input.on_terminal();
  if (bench.on_terminal) std::fprintf(stderr, "help lists the commands, Tab completes them\n");
  bool right = true;
  while (!bench.quit) {
    // A script finds the run with stop or wait, whether or not it has ended before.
    if (bench.on_terminal) right &= done([&] { finish_ended_run(bench); });
    const auto line = input.next();
    if (!line) break;
    const std::vector<std::string> words = words_of(*line);
    if (words.empty() || words.front().starts_with('#')) continue;
    right &= done([&] { do_command(bench, words); });
  }
  if (bench.run.exists()) right &= done([&] { finish_run(bench); });
  right &= done([&] { session.say_bye(); });
  if (bench.on_terminal || right) return 0;
  return bench.run_failed ? kRunFailed : kCommandFailed;
}

}  // namespace faultline::perf
