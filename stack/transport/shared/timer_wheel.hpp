// SPDX-License-Identifier: BSD-3-Clause
// Hashed timing wheel of intrusive lists (Varghese and Lauck, SOSP 1987): deadlines of many QPs at constant
// cost. Nodes are armed lazily: moving a deadline later costs nothing. The node then fires at its old time,
// and its owner checks the deadline again.
#pragma once

#include <array>
#include <cstdint>

#include "stack/transport/shared/types.hpp"

namespace faultline::transport {

struct TimerNode {
  TimerNode* next = nullptr;
  TimerNode** link = nullptr;  ///< the pointer to this node; nullptr when not armed
  TimeNs deadline_ns = kNever;
  [[nodiscard]] bool armed() const { return link != nullptr; }
};

class TimerWheel {
 public:
  /// A tick is 2^shift ns and the horizon is kSlots ticks. Later deadlines wait in the last slot.
  explicit TimerWheel(unsigned tick_shift = 13) : tick_shift_(tick_shift) {}

  /// Arms `node` for `deadline_ns` unless it is armed for that time or earlier. kNever has no effect.
  void arm(TimerNode& node, TimeNs deadline_ns, TimeNs now_ns);
  void disarm(TimerNode& node);

  /// Disarms one node that is due at `now_ns` and returns it; nullptr if none is due. The inline check is for
  /// the usual case: each turn calls this, mostly with nothing due.
  [[nodiscard]] TimerNode* pop_due(TimeNs now_ns) {
    return now_ns < nothing_before_ns_ ? nullptr : take_due(now_ns);
  }

  /// False: pop_due() would return nullptr at that time. True: it may do so too.
  [[nodiscard]] bool may_be_due(TimeNs now_ns) const { return now_ns >= nothing_before_ns_; }

  /// Returns the earliest armed deadline, or an earlier time at which the wheel must advance; kNever if
  /// nothing is armed.
  [[nodiscard]] TimeNs next_deadline() const;

 private:
  static constexpr uint32_t kSlots = 2048;
  static constexpr uint32_t kWords = kSlots / 64;

  [[nodiscard]] TimerNode* take_due(TimeNs now_ns);
  void insert(TimerNode& node);
  void unlink(TimerNode& node);
  [[nodiscard]] uint64_t tick_of(TimeNs time_ns) const { return time_ns >> tick_shift_; }
  /// Finds the first tick at or after `tick_` whose slot has nodes; false if the wheel is empty.
  [[nodiscard]] bool first_used_tick(uint64_t& tick) const;

  unsigned tick_shift_;
  TimeNs nothing_before_ns_ = kNever;  // no node is due and no slot needs sorting before this time
  uint64_t tick_ = 0;                  // every slot before this tick is empty
  uint32_t armed_ = 0;
  std::array<uint64_t, kWords> used_{};
  std::array<TimerNode*, kSlots> slots_{};
};

}  // namespace faultline::transport
