// SPDX-License-Identifier: BSD-3-Clause
// Rings between the lcores of a device, for frames that one core received or looped back and another core
// owns. No port here can steer by QPN, so the receiving core pushes such a frame into its owner's ring. A
// full ring drops received frames, and is back-pressure for the device's own frames. Beside the rings lie the
// votes by which the device points a NIC's flows to their owners.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pmd_glue/capture/capture.hpp"
#include "pmd_glue/config/config.hpp"
#include "pmd_glue/engine/flow_votes.hpp"
#include "pmd_glue/engine/port_counts.hpp"
#include "stack/transport/core/core.hpp"

struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

namespace faultline::record {
class RingWriter;
}

namespace faultline::glue {

class HandOver {
 public:
  /// `flow_entries`: length of the port's redirection table; 0: it has none. Returns nullptr if memory is
  /// short.
  [[nodiscard]] static std::unique_ptr<HandOver> create(uint16_t port_id, uint32_t cores,
                                                        size_t flow_entries = 0);
  /// Frees the frames that remain in the rings.
  ~HandOver();
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;

  /// Pushes frames to a core's ring, from any core's thread. The ring takes a prefix of `frames`; returns its
  /// length.
  [[nodiscard]] size_t push(uint32_t core, std::span<rte_mbuf*> frames);
  /// As push(); counts all frames, and drops those for which the ring has no room. `capture` has their
  /// copies; nullptr: none has one.
  void push_or_drop(uint32_t core, std::span<rte_mbuf*> frames, PortCounts& counts, Capture* capture);
  /// Pushes a copy of the frame, from `pool`, to every core but `from`.
  void push_copies(uint32_t from, const rte_mbuf* frame, rte_mempool* pool, PortCounts& counts);
  /// Takes frames from a core's ring; only by that core's thread.
  [[nodiscard]] size_t take(uint32_t core, std::span<rte_mbuf*> out);
  /// Sets the listener for frames that arrive while the core sleeps; nullptr (the initial value): none. Set
  /// it before a turn, as Core's own listener.
  void set_listener(uint32_t core, transport::DoorbellListener* listener) {
    listeners_[core].store(listener, std::memory_order_seq_cst);
  }
  /// Returns the votes of a core's received frames; nullptr without a redirection table.
  [[nodiscard]] FlowVotes* votes(uint32_t core) { return votes_.empty() ? nullptr : votes_[core].get(); }

 private:
  HandOver() = default;
  std::vector<std::unique_ptr<FlowVotes>> votes_;  ///< by core
  std::vector<rte_ring*> rings_;
  std::array<std::atomic<transport::DoorbellListener*>, kMaxCores> listeners_{};
};

/// Index of the engine's core in its device; `hand_over` is nullptr for a single core.
struct CoreSlot {
  uint32_t index = 0;
  uint32_t cores = 1;
  HandOver* hand_over = nullptr;
  record::RingWriter* recorder = nullptr;  ///< nullptr: nothing is recorded
};

}  // namespace faultline::glue
