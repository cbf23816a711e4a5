// SPDX-License-Identifier: BSD-3-Clause
// The pool of frame buffers.
#pragma once

#include "pmd_glue/config/config.hpp"

struct rte_mempool;

namespace faultline::glue {

/// Data bytes of one buffer. It holds the longest frame, contiguous. The size is rounded up so that memif's
/// buffers (of the same size) and AF_PACKET's frames are a multiple of 512.
inline constexpr uint32_t kBufferBytes = 4608;
static_assert(kBufferBytes >= wire::kMaxFrameBytes);

/// Data bytes of a buffer of a process with a NIC. NICs count a buffer's size in steps of 1 KiB, rounded down
/// (igb, ixgbe), and would split a frame that fits kBufferBytes.
inline constexpr uint32_t kNicBufferBytes = 5120;
static_assert(kNicBufferBytes >= kBufferBytes && kNicBufferBytes % 1024 == 0);

/// Returns the pool of all ports of this process. Call after start_eal(). A frame may move from one port's
/// pool to another's over net_ring, so the pool lives as long as the process. Its memory is on the NUMA node
/// `socket` of the first port; -1: any node. Returns nullptr if memory is short.
[[nodiscard]] rte_mempool* frame_pool(const Config& config, int socket = -1);

/// Creates a LIFO pool of `count` buffers on a NUMA node; -1: any. Returns nullptr if memory is short.
[[nodiscard]] rte_mempool* create_frame_pool(const char* name, unsigned count, int socket = -1,
                                             uint32_t buffer_bytes = kBufferBytes);

/// Resets a pool of create_frame_pool() in a forked child: all frames are free again. The parent's threads
/// and rings never return their frames here, and one of those threads may have been inside an allocation.
void refill(rte_mempool& pool);

}  // namespace faultline::glue
