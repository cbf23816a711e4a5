// SPDX-License-Identifier: BSD-3-Clause
// Hosts, the links that deliver frames to them, and a clock that only events advance.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "tests/sim/world/host.hpp"

namespace faultline::sim {

class World {
 public:
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  virtual ~World() = default;

  [[nodiscard]] TimeNs now() const { return now_; }
  /// Schedules `action` for `when`, before the packets of that time.
  void at(TimeNs when, std::function<void()> action) { actions_.emplace(when, std::move(action)); }

  /// Executes one event. Returns false if no event is left.
  bool step();
  /// Steps until `done` is true or no event is left. Returns false if a limit is reached first.
  bool run_until(const std::function<bool()>& done, TimeNs limit_ns);
  /// Steps until no event is left. Returns false if virtual time exceeds `limit_ns` first.
  bool run(TimeNs limit_ns = 10'000'000'000) {
    return run_until([] { return false; }, limit_ns);
  }

  /// Returns the address vector of packets from `from` to `to`.
  [[nodiscard]] transport::AddressVector path(const SimHost& from, const SimHost& to) const;
  [[nodiscard]] const std::vector<SimHost*>& hosts() const { return hosts_; }

  Trace trace;
  uint64_t steps = 0;
  static constexpr uint64_t kStepLimit = 4'000'000;

 protected:
  World(uint64_t turn_ns, bool keep_trace) : turn_ns_(turn_ns) { trace.keep = keep_trace; }
  /// Gives the host its addresses. `from_wire` delivers its frames; both outlive the world.
  void add_host(SimHost& host, SimLink& from_wire, bool ipv6);
  /// Takes a frame that a host sends to itself. Returns when it has left.
  TimeNs loop_back(SimHost& host, uint16_t link, Frame frame);

 private:
  /// When the next frame reaches a switch.
  [[nodiscard]] virtual TimeNs next_at_switches() const { return kNever; }
  /// Forwards the frames that have reached a switch by now().
  virtual void forward() {}

  const uint64_t turn_ns_;
  TimeNs now_ = 1'000;
  std::multimap<TimeNs, std::function<void()>> actions_;
  std::vector<SimHost*> hosts_;
  std::vector<SimLink*> wires_;     // by host: the link that delivers its frames
  std::vector<TimeNs> next_turns_;  // by host
};

}  // namespace faultline::sim
