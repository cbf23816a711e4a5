// SPDX-License-Identifier: BSD-3-Clause
// DPDK's environment: started once, at the first device that is opened, and never torn down. A forked child
// goes on with its parent's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <spdlog/logger.h>

#include "pmd_glue/config.hpp"

struct rte_mempool;

namespace faultline::glue {

/// Starts EAL for this process. Later calls give the first one's result. False with one line in `error`.
[[nodiscard]] bool start_eal(const Config& config, std::string& error);

/// Runs what starts threads of EAL's, and waits for it, on a thread of its own: EAL makes its caller an
/// lcore, and its threads inherit the caller's signal mask. They must leave the program's signals to the
/// program, but take faults.
void on_starter_thread(const std::function<void()>& start);

/// Gives the calling thread an lcore id, once, so that it has a mempool cache of its own; without one it is
/// only slower.
void register_this_thread();

/// What the glue and EAL say, to stderr.
[[nodiscard]] spdlog::logger& log();

/// Data bytes of one buffer: the longest frame, contiguous, and then some so that memif's buffers (of the
/// same size) and AF_PACKET's frames are a multiple of 512.
inline constexpr uint32_t kBufferBytes = 4608;
static_assert(kBufferBytes >= wire::kMaxFrameBytes);

/// The buffers of all ports of this process, after start_eal(). A frame may go from one port's pool to
/// another's over net_ring, so the pool lives as long as the process. nullptr where there is no memory.
[[nodiscard]] rte_mempool* frame_pool(const Config& config);

}  // namespace faultline::glue
