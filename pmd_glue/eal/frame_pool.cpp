// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/eal/frame_pool.hpp"

#include <algorithm>
#include <mutex>

#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_spinlock.h>
#include <rte_stack.h>

#include "pmd_glue/config/port_kinds.hpp"
#include "stack/base/process/fork_generation.hpp"

namespace faultline::glue {
namespace {

// A stack (LIFO): the frames in use are few, besides those in the caches, so they stay in the CPU's caches. A
// ring (FIFO) would cycle through all frames and fetch each from memory.
constexpr const char* kHandler = "stack";

// Frames in each core's cache, so that a core seldom takes the stack's lock. Over net_ring one core allocates
// the frames that another frees: then this many are in use, and half as many again.
constexpr unsigned kCachedFrames = 256;

}  // namespace

rte_mempool* create_frame_pool(const char* name, unsigned count, int socket, uint32_t buffer_bytes) {
  return rte_pktmbuf_pool_create_by_ops(name, count, kCachedFrames, 0,
                                        static_cast<uint16_t>(buffer_bytes + RTE_PKTMBUF_HEADROOM), socket,
                                        kHandler);
}

rte_mempool* frame_pool(const Config& config, int socket) {
  static std::mutex mutex;
  static rte_mempool* pool = nullptr;
  static uint32_t generation = 0;
  const std::lock_guard guard(mutex);
  if (pool != nullptr && generation != fork_generation()) refill(*pool);
  generation = fork_generation();
  if (pool != nullptr) return pool;
  // 8191 frames a device hold transmit bursts, parked packets, the loopback queue and a NIC's descriptors.
  // The pool takes at most half of EAL's memory.
  constexpr size_t kPerDevice = 8191;
  // A wire has no descriptors that hold frames, and many processes, each with a pool. An idle process has to
  // remain below 32 MiB (docs/wires.md), and these are the largest part of it.
  constexpr size_t kPerWireDevice = 3839;
  const uint32_t buffer_bytes = any_pci_port(config) ? kNicBufferBytes : kBufferBytes;
  const size_t bytes_each = buffer_bytes + RTE_PKTMBUF_HEADROOM + sizeof(rte_mbuf) + 64;
  const size_t affordable = (size_t{config.eal.memory_mib} << 20) / 2 / bytes_each;
  // Each further core has separate bursts, caches and a hand-over ring.
  constexpr size_t kPerFurtherCore = 4096;
  size_t wanted = 0;
  for (const DeviceConfig& device : config.devices)
    wanted += (device.port.kind == PortKind::wire ? kPerWireDevice : kPerDevice) +
              kPerFurtherCore * (core_count_of(device) - 1);
  const auto count = static_cast<unsigned>(std::min(wanted, affordable));
  pool = create_frame_pool("faultline_frames", count, socket, buffer_bytes);
  // Remote memory is slower, but the node may have no memory for EAL.
  if (pool == nullptr && socket != SOCKET_ID_ANY)
    pool = create_frame_pool("faultline_frames", count, SOCKET_ID_ANY, buffer_bytes);
  return pool;
}

void refill(rte_mempool& pool) {
  // A thread of the parent may have held the lock.
  rte_stack_std& stack = static_cast<rte_stack*>(pool.pool_data)->stack_std;
  rte_spinlock_init(&stack.lock);
  stack.len = 0;
  for (unsigned lcore = 0; lcore < RTE_MAX_LCORE; ++lcore)
    if (rte_mempool_cache* const cache = rte_mempool_default_cache(&pool, lcore)) cache->len = 0;
  rte_mempool_obj_iter(
      &pool,
      [](rte_mempool* of, void* /*argument*/, void* frame, unsigned index) {
        rte_pktmbuf_init(of, nullptr, frame, index);
        rte_mempool_ops_enqueue_bulk(of, &frame, 1);
      },
      nullptr);
}

}  // namespace faultline::glue
