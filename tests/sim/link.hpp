// SPDX-License-Identifier: BSD-3-Clause
// One direction of a wire: serialisation, delay, jitter, and damage by chance and by exact mask.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tests/sim/random.hpp"
#include "tests/sim/trace.hpp"

namespace faultline::sim {

/// Bit n of a mask is for the n-th packet of the direction, up to the 64th.
struct LinkScript {
  uint64_t delay_ns = 1'000;
  uint64_t jitter_ns = 0;  ///< up to this much more, each packet by itself: reorders
  uint64_t picoseconds_per_byte = 800;
  uint32_t loss_permille = 0;
  uint32_t duplicate_permille = 0;
  uint32_t corrupt_permille = 0;
  uint32_t late_permille = 0;  ///< held for late_ns
  uint64_t late_ns = 50'000;
  uint32_t damage_limit = ~0U;  ///< damage by chance ends after so many
  uint64_t drop_mask = 0;
  uint64_t duplicate_mask = 0;
  uint64_t corrupt_mask = 0;
  uint64_t late_mask = 0;
  TimeNs dead_from_ns = transport::kNever;  ///< everything after is lost

  [[nodiscard]] bool harmless() const {
    return jitter_ns == 0 && loss_permille == 0 && duplicate_permille == 0 && corrupt_permille == 0 &&
           late_permille == 0 && drop_mask == 0 && duplicate_mask == 0 && corrupt_mask == 0 &&
           late_mask == 0 && dead_from_ns == transport::kNever;
  }
};

class SimLink {
 public:
  SimLink(const LinkScript& script, Random random, bool from_a, Trace& trace)
      : script_(script), random_(random), from_a_(from_a), trace_(trace) {}

  [[nodiscard]] LinkScript& script() { return script_; }
  /// Takes a frame at `now`; returns when its last byte has left the sender.
  TimeNs send(TimeNs now, Frame frame);
  /// A frame from somebody else, straight to the receiver.
  void inject(TimeNs now, Frame frame);

  [[nodiscard]] TimeNs next_arrival() const {
    return arrivals_.empty() ? transport::kNever : arrivals_.begin()->first;
  }
  /// Takes one frame that has arrived by `now`; false when there is none.
  bool take(TimeNs now, Frame& frame);

  uint32_t sent = 0;
  uint32_t damaged = 0;

 private:
  [[nodiscard]] bool hit(uint64_t mask, uint32_t permille);
  void flip_bit(Frame& frame);

  LinkScript script_;
  Random random_;
  const bool from_a_;
  Trace& trace_;
  TimeNs busy_until_ = 0;
  std::multimap<TimeNs, Frame> arrivals_;
};

}  // namespace faultline::sim
