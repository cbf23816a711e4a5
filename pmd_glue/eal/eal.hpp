// SPDX-License-Identifier: BSD-3-Clause
// DPDK's environment (EAL): started once, when the first device is opened, and never torn down. A forked
// child continues with its parent's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <spdlog/logger.h>

#include "pmd_glue/config/config.hpp"

namespace faultline::glue {

/// Starts EAL for this process. Later calls return the first call's result. Returns false with one line in
/// `error` on failure.
[[nodiscard]] bool start_eal(const Config& config, std::string& error);

/// Runs `start`, which starts EAL threads, on a separate thread and waits for it. EAL makes its caller an
/// lcore, and its threads inherit the caller's signal mask: they must not take the program's signals, but
/// must take faults. Returns 0, or the errno of a failed thread creation; then `start` has not run.
[[nodiscard]] int on_starter_thread(const std::function<void()>& start);

/// Registers the calling thread as an lcore, once, so that it has a mempool cache. Without an lcore id it is
/// only slower.
void register_this_thread();

}  // namespace faultline::glue
