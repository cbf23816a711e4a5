// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/hand_over.hpp"

#include <array>

#include <rte_mbuf.h>
#include <rte_ring.h>
#include <spdlog/fmt/fmt.h>

namespace faultline::glue {
namespace {

constexpr unsigned kFrames = 2048;

}  // namespace

std::unique_ptr<HandOver> HandOver::create(uint16_t port_id, uint32_t cores, size_t flow_entries) {
  std::unique_ptr<HandOver> hand_over(new HandOver);
  for (uint32_t core = 0; core < cores; ++core) {
    const std::string name = fmt::format("fl_core_{}_{}", port_id, core);
    rte_ring* ring = rte_ring_create(name.c_str(), kFrames, SOCKET_ID_ANY, RING_F_SC_DEQ);
    if (ring == nullptr) return nullptr;
    hand_over->rings_.push_back(ring);
    if (flow_entries != 0) hand_over->votes_.push_back(std::make_unique<FlowVotes>(flow_entries));
  }
  return hand_over;
}

HandOver::~HandOver() {
  std::array<rte_mbuf*, 32> left;
  for (uint32_t core = 0; core < rings_.size(); ++core) {
    while (const size_t count = take(core, left))
      rte_pktmbuf_free_bulk(left.data(), static_cast<unsigned>(count));
    rte_ring_free(rings_[core]);
  }
}

size_t HandOver::push(uint32_t core, std::span<rte_mbuf*> frames) {
  const size_t pushed = rte_ring_mp_enqueue_burst(rings_[core], reinterpret_cast<void* const*>(frames.data()),
                                                  static_cast<unsigned>(frames.size()), nullptr);
  // Either the owner's last turn before its sleep finds the frames, or this thread sees the listener.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (transport::DoorbellListener* const hears = listeners_[core].load(std::memory_order_seq_cst))
    hears->on_doorbell();
  return pushed;
}

void HandOver::push_or_drop(uint32_t core, std::span<rte_mbuf*> frames, PortCounts& counts,
                            Capture* capture) {
  const size_t pushed = push(core, frames);
  counts.handed_over.add(pushed);
  counts.hand_over_dropped.add(frames.size() - pushed);
  if (capture != nullptr) {
    constexpr DropCounter kWhy = drop_counter(&verbs::PortCounters::hand_over_dropped);
    for (rte_mbuf* frame : frames.subspan(pushed)) capture->settle(*frame, kWhy);
  }
  rte_pktmbuf_free_bulk(frames.data() + pushed, static_cast<unsigned>(frames.size() - pushed));
}

void HandOver::push_copies(uint32_t from, const rte_mbuf* frame, rte_mempool* pool, PortCounts& counts) {
  for (uint32_t core = 0; core < rings_.size(); ++core) {
    if (core == from) continue;
    rte_mbuf* copy = rte_pktmbuf_copy(frame, pool, 0, UINT32_MAX);
    if (copy == nullptr) continue;
    Capture::forget(*copy);
    push_or_drop(core, {&copy, 1}, counts, nullptr);
  }
}

size_t HandOver::take(uint32_t core, std::span<rte_mbuf*> out) {
  return rte_ring_sc_dequeue_burst(rings_[core], reinterpret_cast<void**>(out.data()),
                                   static_cast<unsigned>(out.size()), nullptr);
}

}  // namespace faultline::glue
