// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/world/link.hpp"

#include <algorithm>

#include "stack/wire/packet/ecn.hpp"

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

void SimLink::wait_for_room(uint64_t frame_bytes) {
  const uint64_t per_byte = script_.bottleneck_picoseconds_per_byte;
  const uint64_t room_ps = (script_.queue_limit_bytes - frame_bytes) * per_byte;
  if (switch_busy_ps_ > room_ps) busy_until_ = std::max(busy_until_, (switch_busy_ps_ - room_ps) / 1000 + 1);
}

bool SimLink::pass_switch(TimeNs at, Frame& frame, TimeNs& leaves) {
  const uint64_t per_byte = script_.bottleneck_picoseconds_per_byte;
  const uint64_t at_ps = at * 1000;
  const uint64_t queued_bytes = switch_busy_ps_ > at_ps ? (switch_busy_ps_ - at_ps) / per_byte : 0;
  if (queued_bytes + frame.size() > script_.queue_limit_bytes) {
    ++queue_drops;
    return false;
  }
  queue_peak_bytes = std::max(queue_peak_bytes, queued_bytes);
  const double span =
      static_cast<double>(script_.mark_all_bytes) - static_cast<double>(script_.mark_from_bytes);
  const bool mark = queued_bytes >= script_.mark_all_bytes ||
                    (queued_bytes > script_.mark_from_bytes &&
                     random_.happens(script_.mark_ratio *
                                     static_cast<double>(queued_bytes - script_.mark_from_bytes) / span));
  if (mark && wire::mark_congestion_experienced(frame)) ++queue_marks;
  const uint64_t takes_ps = frame.size() * per_byte;
  // A frame occupies the queue until its last byte has left.
  queue_area += static_cast<double>(frame.size()) *
                static_cast<double>(std::max(switch_busy_ps_, at_ps) + takes_ps - at_ps) / 1000.0;
  switch_busy_ps_ = std::max(switch_busy_ps_, at_ps) + takes_ps;
  leaves = switch_busy_ps_ / 1000;
  return true;
}

TimeNs SimLink::send(TimeNs now, Frame frame) {
  if (now >= script_.changes_at_ns) {
    script_.changes_at_ns = kNever;
    script_.delay_ns = script_.changed_delay_ns;
    script_.picoseconds_per_byte = script_.changed_picoseconds_per_byte;
  }
  if (script_.change) script_.change(frame);
  busy_until_ = std::max(busy_until_, now) + frame.size() * script_.picoseconds_per_byte / 1000;
  TraceEntry& entry = trace_.add(now, number_, sent, frame);
  if (script_.pause_when_full) wait_for_room(frame.size());
  TimeNs leaves = busy_until_;
  const bool passed = script_.bottleneck_picoseconds_per_byte == 0 || pass_switch(busy_until_, frame, leaves);
  TimeNs arrival = leaves + script_.delay_ns + random_.below(script_.jitter_ns + 1);
  if (!passed || random_.happens(script_.loss_ratio) || hit(script_.drop_mask, script_.loss_permille) ||
      now >= script_.dead_from_ns) {
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
  trace_.add(now, number_, sent, frame).verdict = Verdict::injected;
  arrivals_.emplace(now, std::move(frame));
}

bool SimLink::take(TimeNs now, Frame& frame) {
  if (arrivals_.empty() || arrivals_.begin()->first > now) return false;
  frame = std::move(arrivals_.begin()->second);
  arrivals_.erase(arrivals_.begin());
  return true;
}

}  // namespace faultline::sim
