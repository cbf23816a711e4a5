// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/link.hpp"

#include <algorithm>

namespace faultline::sim {

bool SimLink::hit(uint64_t mask, uint32_t permille) {
  const bool by_mask = sent < 64 && (mask >> sent & 1) != 0;
  const bool by_chance = random_.chance(permille) && damaged < script_.damage_limit;
  if (by_mask || by_chance) ++damaged;
  return by_mask || by_chance;
}

void SimLink::flip_bit(Frame& frame) {
  const uint64_t bit = random_.below(frame.size() * 8);
  frame[bit / 8] = static_cast<uint8_t>(frame[bit / 8] ^ 1U << (bit % 8));
}

TimeNs SimLink::send(TimeNs now, Frame frame) {
  busy_until_ = std::max(busy_until_, now) + frame.size() * script_.picoseconds_per_byte / 1000;
  TraceEntry& entry = trace_.add(now, from_a_, sent, frame);
  TimeNs arrival = busy_until_ + script_.delay_ns + random_.below(script_.jitter_ns + 1);
  if (hit(script_.drop_mask, script_.loss_permille) || now >= script_.dead_from_ns) {
    entry.verdict = Verdict::lost;
  } else {
    if (hit(script_.late_mask, script_.late_permille)) {
      entry.verdict = Verdict::delayed;
      arrival += script_.late_ns;
    }
    if (hit(script_.duplicate_mask, script_.duplicate_permille)) {
      entry.verdict = Verdict::duplicated;
      arrivals_.emplace(arrival + random_.below(script_.jitter_ns + 1), frame);
    }
    if (hit(script_.corrupt_mask, script_.corrupt_permille)) {
      entry.verdict = Verdict::corrupted;
      flip_bit(frame);
    }
    arrivals_.emplace(arrival, std::move(frame));
  }
  ++sent;
  return busy_until_;
}

void SimLink::inject(TimeNs now, Frame frame) {
  trace_.add(now, from_a_, sent, frame).verdict = Verdict::injected;
  arrivals_.emplace(now, std::move(frame));
}

bool SimLink::take(TimeNs now, Frame& frame) {
  if (arrivals_.empty() || arrivals_.begin()->first > now) return false;
  frame = std::move(arrivals_.begin()->second);
  arrivals_.erase(arrivals_.begin());
  return true;
}

}  // namespace faultline::sim
