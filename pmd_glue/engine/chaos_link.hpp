// SPDX-License-Identifier: BSD-3-Clause
// One direction of a port with an emulated bad link. The model decides when each frame leaves, and whether it
// leaves at all. Owner: the engine's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pmd_glue/capture/capture.hpp"
#include "pmd_glue/engine/port_counts.hpp"
#include "stack/chaos/frame_judge.hpp"
#include "stack/chaos/link_model.hpp"
#include "stack/transport/shared/types.hpp"

struct rte_mbuf;
struct rte_mempool;

namespace faultline::glue {

/// Frames by outcome, since the start.
struct ChaosCounts {
  uint64_t lost = 0, duplicated = 0, corrupted = 0, delayed = 0, marked = 0;
};

class ChaosLink {
 public:
  /// Capacity in frames; further frames are lost, as from a switch's full queue.
  static constexpr size_t kHeld = 2048;

  struct Held {
    TimeNs due = 0;
    uint64_t order = 0;  ///< orders frames with equal `due`
    rte_mbuf* frame = nullptr;
  };

  /// Duplicates are allocated from `pool`. `judge` may be nullptr. `capture` has the frames' copies; nullptr:
  /// none has one.
  ChaosLink(const chaos::LinkModelConfig& config, rte_mempool* pool,
            std::unique_ptr<chaos::FrameJudge> judge = nullptr, Capture* capture = nullptr);
  ~ChaosLink();
  ChaosLink(const ChaosLink&) = delete;
  ChaosLink& operator=(const ChaosLink&) = delete;

  /// Takes ownership of all frames.
  void put(std::span<rte_mbuf* const> frames, TimeNs now, ChaosCounts& counts);
  /// As above; adds the outcomes to the port's counters.
  void put(std::span<rte_mbuf* const> frames, TimeNs now, PortCounts& counts);
  /// Returns the number of due frames moved to `out`; the caller owns them.
  [[nodiscard]] size_t take_due(TimeNs now, std::span<Held> out);
  /// Takes back frames that the port did not accept; they keep their place in the order.
  void give_back(std::span<const Held> frames);
  /// Frames that wait for a time. Those that wait for later frames need no turn.
  [[nodiscard]] bool holds_frames() const { return !held_.empty(); }

 private:
  void lose(rte_mbuf* frame, ChaosCounts& counts);
  void hold(rte_mbuf* frame, TimeNs due, ChaosCounts& counts);
  /// Keeps a frame until so many later ones are on their way.
  void set_aside(rte_mbuf* frame, uint32_t behind, TimeNs due, ChaosCounts& counts);
  /// A frame that is due then passes those that are set aside.
  void pass(TimeNs due, ChaosCounts& counts);

  chaos::LinkModel model_;
  rte_mempool* const pool_;
  const std::unique_ptr<chaos::FrameJudge> judge_;
  Capture* const capture_;
  std::vector<Held> held_;  // a min-heap by (due, order); its capacity is reserved once
  struct Aside {
    rte_mbuf* frame;
    uint32_t left;  ///< frames that are still to pass
    TimeNs due;     ///< not before
  };
  std::vector<Aside> aside_;  ///< in their order
  uint64_t next_order_ = 0;
};

}  // namespace faultline::glue
