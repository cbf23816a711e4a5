// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/shared/timer_wheel.hpp"

#include <algorithm>
#include <bit>

namespace faultline::transport {

void TimerWheel::insert(TimerNode& node) {
  const uint64_t tick = std::clamp(tick_of(node.deadline_ns), tick_, tick_ + kSlots - 1);
  const auto slot = static_cast<uint32_t>(tick % kSlots);
  node.next = slots_[slot];
  node.link = &slots_[slot];
  if (node.next != nullptr) node.next->link = &node.next;
  slots_[slot] = &node;
  used_[slot / 64] |= uint64_t{1} << (slot % 64);
  nothing_before_ns_ = std::min(nothing_before_ns_, tick << tick_shift_);
  ++armed_;
}

void TimerWheel::unlink(TimerNode& node) {
  *node.link = node.next;
  if (node.next != nullptr) node.next->link = node.link;
  // The slot's head is the only link that lies inside slots_: an emptied slot clears its bit.
  if (node.next == nullptr && node.link >= slots_.data() && node.link < slots_.data() + kSlots) {
    const auto slot = static_cast<uint32_t>(node.link - slots_.data());
    used_[slot / 64] &= ~(uint64_t{1} << (slot % 64));
  }
  node.next = nullptr;
  node.link = nullptr;
  --armed_;
}

void TimerWheel::arm(TimerNode& node, TimeNs deadline_ns, TimeNs now_ns) {
  if (deadline_ns == kNever) return;
  if (armed_ == 0) tick_ = tick_of(now_ns);
  if (node.armed()) {
    if (node.deadline_ns <= deadline_ns) return;
    unlink(node);
  }
  node.deadline_ns = deadline_ns;
  insert(node);
}

void TimerWheel::disarm(TimerNode& node) {
  if (node.armed()) unlink(node);
}

bool TimerWheel::first_used_tick(uint64_t& tick) const {
  if (armed_ == 0) return false;
  const auto start = static_cast<uint32_t>(tick_ % kSlots);
  for (uint32_t step = 0; step <= kWords; ++step) {
    const uint32_t word = (start / 64 + step) % kWords;
    uint64_t bits = used_[word];
    if (step == 0) bits &= ~uint64_t{0} << (start % 64);
    if (step == kWords) bits &= ~(~uint64_t{0} << (start % 64));
    if (bits == 0) continue;
    const uint32_t slot = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
    tick = tick_ + (slot + kSlots - start) % kSlots;
    return true;
  }
  return false;
}

TimerNode* TimerWheel::take_due(TimeNs now_ns) {
  const uint64_t now_tick = tick_of(now_ns);
  uint64_t tick = 0;
  nothing_before_ns_ = kNever;
  while (first_used_tick(tick)) {
    if (tick > now_tick) {
      nothing_before_ns_ = std::min(nothing_before_ns_, tick << tick_shift_);
      break;
    }
    // Slots before `tick` are empty, so the wheel may advance to it. Nodes that were clipped to the horizon
    // are then inserted at their real slot.
    tick_ = tick;
    TimerNode* node = slots_[tick % kSlots];
    while (node != nullptr) {
      TimerNode* next = node->next;
      if (node->deadline_ns <= now_ns) {
        unlink(*node);
        nothing_before_ns_ = now_ns;
        return node;
      }
      if (tick_of(node->deadline_ns) != tick) {
        unlink(*node);
        insert(*node);
      } else {
        // Due later within this tick.
        nothing_before_ns_ = std::min(nothing_before_ns_, node->deadline_ns);
      }
      node = next;
    }
    if (tick == now_tick) {
      nothing_before_ns_ = std::min(nothing_before_ns_, (tick + 1) << tick_shift_);
      return nullptr;
    }
    tick_ = tick + 1;
  }
  if (now_tick > tick_) tick_ = now_tick;
  return nullptr;
}

TimeNs TimerWheel::next_deadline() const {
  uint64_t tick = 0;
  if (!first_used_tick(tick)) return kNever;
  TimeNs earliest = kNever;
  for (const TimerNode* node = slots_[tick % kSlots]; node != nullptr; node = node->next)
    earliest = std::min(earliest, node->deadline_ns);
  // A slot at the horizon may hold only later deadlines: advance the wheel when that slot is reached, to sort
  // them.
  return std::min(earliest, (tick + 1) << tick_shift_);
}

}  // namespace faultline::transport
