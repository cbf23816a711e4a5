// SPDX-License-Identifier: BSD-3-Clause
// Deadlines of many QPs at a constant cost: a hashed timing wheel of intrusive lists (Varghese and Lauck,
// SOSP 1987). A node is armed lazily: moving a deadline later costs nothing, the node fires at its old time
// and its owner looks again.
#pragma once

#include <array>
#include <cstdint>

#include "stack/transport/shared/types.hpp"

namespace faultline::transport {

struct TimerNode {
  TimerNode* next = nullptr;
  TimerNode** link = nullptr;  ///< what points at this node; nullptr when not armed
  TimeNs deadline_ns = kNever;
  [[nodiscard]] bool armed() const { return link != nullptr; }
};

class TimerWheel {
 public:
  /// A tick is 2^shift ns, the horizon kSlots of them; what lies beyond waits in the last slot.
  explicit TimerWheel(unsigned tick_shift = 13) : tick_shift_(tick_shift) {}

  /// Arms `node` for `deadline_ns` unless it is armed for that or earlier. kNever arms nothing.
  void arm(TimerNode& node, TimeNs deadline_ns, TimeNs now_ns);
  void disarm(TimerNode& node);

  /// Disarms one node that is due at `now_ns` and returns it; nullptr when none is left. Asked in each turn,
  /// and mostly in vain.
  [[nodiscard]] TimerNode* pop_due(TimeNs now_ns) {
    return now_ns < nothing_before_ns_ ? nullptr : take_due(now_ns);
  }

  /// The earliest armed deadline, or an earlier instant at which the wheel has to turn; kNever when nothing
  /// is armed.
  [[nodiscard]] TimeNs next_deadline() const;

 private:
  static constexpr uint32_t kSlots = 2048;
  static constexpr uint32_t kWords = kSlots / 64;

  [[nodiscard]] TimerNode* take_due(TimeNs now_ns);
  void insert(TimerNode& node);
  void unlink(TimerNode& node);
  [[nodiscard]] uint64_t tick_of(TimeNs time_ns) const { return time_ns >> tick_shift_; }
  /// First tick at or after `tick_` whose slot has nodes; false when the wheel is empty.
  [[nodiscard]] bool first_used_tick(uint64_t& tick) const;

  unsigned tick_shift_;
  TimeNs nothing_before_ns_ = kNever;  // no node is due earlier, and no slot to be sorted
  uint64_t tick_ = 0;                  // every slot before this tick is empty
  uint32_t armed_ = 0;
  std::array<uint64_t, kWords> used_{};
  std::array<TimerNode*, kSlots> slots_{};
};

}  // namespace faultline::transport
