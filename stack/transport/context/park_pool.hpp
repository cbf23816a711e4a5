// SPDX-License-Identifier: BSD-3-Clause
// Frames that the core keeps: parked packets, which wait for a page, and packets that are held after a gap.
// Both come from one pool. Owner: the core's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "stack/transport/qp/config.hpp"
#include "stack/transport/qp/queue_pair.hpp"
#include "stack/transport/shared/counters.hpp"
#include "stack/transport/shared/port.hpp"
#include "stack/transport/shared/timer_wheel.hpp"

namespace faultline::transport {

class ParkPool {
 public:
  ParkPool(const CoreConfig& config, Port& port, CoreCounters& counters, TimerWheel& timers);

  // --- parked packets ---
  /// Appends a frame to the QP's parked packets; false if a bound is reached.
  [[nodiscard]] bool park(QueuePair& qp, const RxFrame& frame);
  void unpark_head(QueuePair& qp);  ///< the caller owns the head's frame afterwards
  /// Releases all of a QP's parked packets to the port.
  void release_parked(QueuePair& qp);

  // --- packets after a gap ---
  /// Holds a frame in PSN order; false if a bound is reached or the PSN is held already.
  [[nodiscard]] bool hold(QueuePair& qp, wire::Psn psn, const RxFrame& frame, TimeNs now_ns);
  [[nodiscard]] RxFrame take_held_head(QueuePair& qp, TimeNs now_ns);
  void release_held(QueuePair& qp);

 private:
  const CoreConfig& config_;
  Port& port_;
  CoreCounters& counters_;
  TimerWheel& timers_;
  std::vector<ParkedFrame> pool_;
  ParkedFrame* free_ = nullptr;
  uint32_t parked_ = 0;  ///< total over all QPs
};

}  // namespace faultline::transport
