// SPDX-License-Identifier: BSD-3-Clause
// DPDK's environment: started once, at the first device that is opened, and never torn down. A forked child
// goes on with its parent's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <spdlog/logger.h>

#include "pmd_glue/config/config.hpp"

namespace faultline::glue {

/// Starts EAL for this process. Later calls give the first one's result. False with one line in `error`.
[[nodiscard]] bool start_eal(const Config& config, std::string& error);

/// Runs what starts threads of EAL's, and waits for it, on a thread of its own: EAL makes its caller an
/// lcore, and its threads inherit the caller's signal mask. They must leave the program's signals to the
/// program, but take faults. 0, or the errno of a thread that could not be made: then nothing has run.
[[nodiscard]] int on_starter_thread(const std::function<void()>& start);

/// Gives the calling thread an lcore id, once, so that it has a mempool cache of its own; without one it is
/// only slower.
void register_this_thread();

}  // namespace faultline::glue
