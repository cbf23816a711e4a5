// SPDX-License-Identifier: BSD-3-Clause
// The events of a simulation in the order of their virtual times. Events of one time keep the order in which
// they were added, so a run depends on nothing but its input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "stack/base/time.hpp"

namespace faultline::fabric {

/// Virtual time. In nanoseconds a frame of 64 bytes at 400 Gb/s would have no duration.
using TimePs = uint64_t;
inline constexpr TimePs kNeverPs = ~TimePs{0};

[[nodiscard]] constexpr TimePs ps_of(TimeNs time_ns) {
  return time_ns >= kNeverPs / 1000 ? kNeverPs : time_ns * 1000;
}
[[nodiscard]] constexpr TimeNs ns_of(TimePs time_ps) {
  return time_ps / 1000;
}

enum class EventKind : uint8_t {
  sent,     ///< a channel has sent the last byte of a frame
  arrived,  ///< the oldest frame under way on a channel has arrived
  pause,    ///< a PFC pause reaches the sender of a channel
  resume,   ///< a PFC resume reaches it
  link_down,
  link_up,
  reroute,  ///< the routes reflect the state of the links
  turn,     ///< of a host's engine
  traffic,  ///< the pattern starts flows
  sample    ///< of the queues
};

struct Event {
  TimePs time_ps = 0;
  uint64_t number = 0;  ///< counts the events
  EventKind kind = EventKind::sent;
  uint32_t target = 0;  ///< channel, link or host

  [[nodiscard]] bool is_after(const Event& other) const {
    return time_ps != other.time_ps ? time_ps > other.time_ps : number > other.number;
  }
};

class EventQueue {
 public:
  void add(TimePs time_ps, EventKind kind, uint32_t target) {
    heap_.push_back({.time_ps = time_ps, .number = next_number_++, .kind = kind, .target = target});
    std::ranges::push_heap(heap_, is_later);
  }
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] TimePs next_ps() const { return heap_.empty() ? kNeverPs : heap_.front().time_ps; }
  /// Returns up to three events, among them the next two.
  [[nodiscard]] std::span<const Event> soon() const {
    constexpr size_t kRootAndChildren = 3;
    return std::span(heap_).first(std::min(heap_.size(), kRootAndChildren));
  }
  Event take() {
    std::ranges::pop_heap(heap_, is_later);
    const Event event = heap_.back();
    heap_.pop_back();
    return event;
  }
  /// Number of events added so far.
  [[nodiscard]] uint64_t added() const { return next_number_; }

 private:
  static bool is_later(const Event& a, const Event& b) { return a.is_after(b); }

  std::vector<Event> heap_;
  uint64_t next_number_ = 0;
};

}  // namespace faultline::fabric
