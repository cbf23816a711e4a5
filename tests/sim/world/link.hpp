// SPDX-License-Identifier: BSD-3-Clause
// One direction of a wire: serialisation, delay, jitter, and damage at random or by exact mask.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "tests/sim/world/random.hpp"
#include "tests/sim/world/trace.hpp"

namespace faultline::sim {

/// Bit n of a mask selects the n-th packet of the direction, up to the 64th.
struct LinkScript {
  uint64_t delay_ns = 1'000;
  uint64_t jitter_ns = 0;  ///< maximum additional delay per packet; reorders
  uint64_t picoseconds_per_byte = 800;
  double loss_ratio = 0;  ///< in addition to loss_permille, for rare losses
  uint32_t loss_permille = 0;
  uint32_t duplicate_permille = 0;
  uint32_t corrupt_permille = 0;
  uint32_t late_permille = 0;  ///< delayed by late_ns
  uint64_t late_ns = 50'000;
  uint32_t damage_limit = ~0U;  ///< maximum number of randomly damaged packets
  uint64_t drop_mask = 0;
  uint64_t duplicate_mask = 0;
  uint64_t corrupt_mask = 0;
  uint64_t late_mask = 0;
  TimeNs dead_from_ns = kNever;  ///< every later packet is lost
  // The path changes at this time.
  TimeNs changes_at_ns = kNever;
  uint64_t changed_delay_ns = 0;
  uint64_t changed_picoseconds_per_byte = 0;
  // A switch after the sender's link, with a slower egress link. 0: no switch.
  uint64_t bottleneck_picoseconds_per_byte = 0;
  uint64_t queue_limit_bytes = 256 << 10;  ///< frames that do not fit are dropped
  // RED with ECN (RFC 3168, as the DCQCN paper configures switches): no marks below the first threshold, all
  // frames marked above the second.
  uint64_t mark_from_bytes = ~uint64_t{0};
  uint64_t mark_all_bytes = ~uint64_t{0};
  std::function<void(Frame&)> change;  ///< what a host below the core changes in each frame, if any
  bool pause_when_full = false;  ///< the switch pauses the sender (IEEE 802.1Qbb) instead of dropping frames
  double mark_ratio = 0.01;      ///< just below mark_all_bytes

  [[nodiscard]] bool harmless() const {
    return jitter_ns == 0 && loss_ratio <= 0 && (bottleneck_picoseconds_per_byte == 0 || pause_when_full) &&
           loss_permille == 0 && duplicate_permille == 0 && corrupt_permille == 0 && late_permille == 0 &&
           drop_mask == 0 && duplicate_mask == 0 && corrupt_mask == 0 && late_mask == 0 &&
           dead_from_ns == kNever;
  }
};

class SimLink {
 public:
  /// `number` is the index of the direction in Trace::names.
  SimLink(const LinkScript& script, Random random, uint16_t number, Trace& trace)
      : script_(script), random_(random), number_(number), trace_(trace) {}

  [[nodiscard]] LinkScript& script() { return script_; }
  /// Accepts a frame at `now`. Returns the time at which its last byte has left the sender.
  TimeNs send(TimeNs now, Frame frame);
  /// Delivers a frame of another sender directly to the receiver.
  void inject(TimeNs now, Frame frame);

  [[nodiscard]] TimeNs next_arrival() const { return arrivals_.empty() ? kNever : arrivals_.begin()->first; }
  /// Takes one frame that has arrived by `now`. Returns false if there is none.
  bool take(TimeNs now, Frame& frame);

  /// Peak of the switch queue, in bytes.
  uint64_t queue_peak_bytes = 0;
  uint64_t queue_drops = 0;
  uint64_t queue_marks = 0;
  /// Integral of the queue length over time, in bytes x ns; divide by the duration for the mean.
  double queue_area = 0;

  uint32_t sent = 0;
  uint32_t damaged = 0;

 private:
  [[nodiscard]] bool hit(uint64_t mask, uint32_t permille);
  void flip_bit(Frame& frame);
  void wait_for_room(uint64_t frame_bytes);
  /// Computes when the frame leaves the switch. Returns false if the queue is full.
  [[nodiscard]] bool pass_switch(TimeNs at, Frame& frame, TimeNs& leaves);

  LinkScript script_;
  Random random_;
  const uint16_t number_;
  Trace& trace_;
  TimeNs switch_busy_ps_ = 0;  ///< in picoseconds
  TimeNs busy_until_ = 0;
  std::multimap<TimeNs, Frame> arrivals_;
};

}  // namespace faultline::sim
