// SPDX-License-Identifier: BSD-3-Clause
// The buffers that frames are written to and received in.
#pragma once

#include "pmd_glue/config/config.hpp"

struct rte_mempool;

namespace faultline::glue {

/// Data bytes of one buffer: the longest frame, contiguous, and then some so that memif's buffers (of the
/// same size) and AF_PACKET's frames are a multiple of 512.
inline constexpr uint32_t kBufferBytes = 4608;
static_assert(kBufferBytes >= wire::kMaxFrameBytes);

/// The buffers of all ports of this process, after start_eal(). A frame may go from one port's pool to
/// another's over net_ring, so the pool lives as long as the process. nullptr where there is no memory.
[[nodiscard]] rte_mempool* frame_pool(const Config& config);

/// One of `count` buffers of kBufferBytes that gives out what came back last. nullptr where there is no
/// memory.
[[nodiscard]] rte_mempool* create_frame_pool(const char* name, unsigned count);

/// In a forked child: all frames are in the pool again, which create_frame_pool() made. Those that the
/// parent's threads and rings hold nobody gives back here, and one of them may just have been about to take
/// some.
void refill(rte_mempool& pool);

}  // namespace faultline::glue
