// SPDX-License-Identifier: BSD-3-Clause
// The table of the prompt's commands: help, completion and dispatch use it.
#pragma once

#include <string>
#include <vector>

#include "apps/perf/prompt/bench.hpp"

namespace faultline::perf {

/// Does the command of these words, of which there is one at least. Throws a Mistake.
void do_command(Bench& bench, const std::vector<std::string>& words);

/// Returns the words that may follow `before` in a command.
[[nodiscard]] std::vector<std::string> candidates_after(const std::vector<std::string>& before);

/// Ends the run and prints its result. A run that failed is a Mistake.
void finish_run(Bench& bench);
/// Does the same if the run's traffic has ended by itself.
void finish_ended_run(Bench& bench);

}  // namespace faultline::perf
