// SPDX-License-Identifier: BSD-3-Clause
// One direction of a port that is told to behave like a bad link: frames go in when they come, and out when,
// and if, the model says. Owner: the engine's thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stack/chaos/link_model.hpp"
#include "stack/transport/shared/types.hpp"

struct rte_mbuf;
struct rte_mempool;

namespace faultline::glue {

/// What became of frames, since the start.
struct ChaosCounts {
  uint64_t lost = 0, duplicated = 0, corrupted = 0, delayed = 0, marked = 0;
};

class ChaosLink {
 public:
  /// Frames on their way; what comes beyond is lost, as from a switch's full queue.
  static constexpr size_t kHeld = 2048;

  struct Held {
    TimeNs due = 0;
    uint64_t order = 0;  ///< of frames that are due at the same time
    rte_mbuf* frame = nullptr;
  };

  /// Duplicates come from `pool`.
  ChaosLink(const chaos::LinkModelConfig& config, rte_mempool* pool);
  ~ChaosLink();
  ChaosLink(const ChaosLink&) = delete;
  ChaosLink& operator=(const ChaosLink&) = delete;

  /// All of them are the link's now.
  void put(std::span<rte_mbuf* const> frames, TimeNs now, ChaosCounts& counts);
  /// The next frames that are due are the caller's.
  [[nodiscard]] size_t take_due(TimeNs now, std::span<Held> out);
  /// What could not be sent goes first next time.
  void give_back(std::span<const Held> frames);
  [[nodiscard]] bool holds_frames() const { return !held_.empty(); }

 private:
  void hold(rte_mbuf* frame, TimeNs due, ChaosCounts& counts);

  chaos::LinkModel model_;
  rte_mempool* const pool_;
  std::vector<Held> held_;  // a heap, the next one first; never longer than what it reserved
  uint64_t next_order_ = 0;
};

}  // namespace faultline::glue
