// SPDX-License-Identifier: BSD-3-Clause
// What the prompt's commands work on.
#pragma once

#include <string>
#include <vector>

#include "apps/perf/prompt/background_run.hpp"
#include "apps/perf/prompt/mistake.hpp"
#include "apps/perf/traffic/session.hpp"

namespace faultline::perf {

struct Bench {
  explicit Bench(ClientSession& of)
      : session(of),
        run(of),
        length{of.options().seconds_given ? of.options().seconds : 0, of.options().iterations} {}

  ClientSession& session;
  BackgroundRun run;
  RunLength length;            ///< of the next run
  uint64_t last_messages = 0;  ///< of the last run that ended
  bool on_terminal = false;    ///< Enter can end a wait
  bool quit = false;
  bool run_failed = false;  ///< a measurement failed, or bytes were wrong

  /// Throws a Mistake if there is no run. `what`: the command.
  void need_run(const std::string& what) const {
    if (!run.exists()) throw Mistake(what + ": no run is under way; start begins one");
  }
};

/// The words behind a command's name.
using Arguments = std::vector<std::string>;

}  // namespace faultline::perf
