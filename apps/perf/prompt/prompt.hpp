// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "apps/perf/traffic/session.hpp"

namespace faultline::perf {

/// Does the commands of standard input until `quit` or its end. Prints results to stdout and one line for
/// each mistake to stderr. Returns the exit status: on a terminal 0; otherwise 1 if a run failed, 2 if
/// another command failed, or 0.
[[nodiscard]] int run_prompt(ClientSession& session);

}  // namespace faultline::perf
