// SPDX-License-Identifier: BSD-3-Clause
// Two hosts, a wire between them, and a clock that only events advance. The scripts and one seed determine
// everything.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stack/transport/core/core.hpp"
#include "tests/sim/world/link.hpp"
#include "tests/sim/world/port.hpp"
#include "tests/sim/world/scripted_memory.hpp"

namespace faultline::sim {

struct HostScript {
  transport::CoreConfig core;
  MemoryScript memory;
  PortScript port;
};

struct SimulationScript {
  HostScript a, b;
  LinkScript a_to_b, b_to_a;
  bool ipv6 = false;
  bool keep_trace = true;
  uint64_t turn_ns = 200;  ///< duration of one poll loop iteration
};

/// An asynchronous event raised by a core.
struct RaisedEvent {
  uint32_t qpn = 0;
  transport::AsyncEvent event = transport::AsyncEvent::qp_fatal;
};

class SimHost final : public transport::EventSink {
 public:
  SimHost(const HostScript& script, Random& random, SimPort::Wire wire);

  void on_qp_event(uint32_t qpn, void* user, transport::AsyncEvent event) override;
  void on_cq_event(transport::CompletionQueue* cq, transport::AsyncEvent event) override;
  void on_srq_event(transport::SharedReceiveQueue* /*srq*/, transport::AsyncEvent /*event*/) override {
    ++srq_events;
  }
  status::FailureCause on_qp_failure(const transport::QpFailure& failure) override;

  /// Delivers what is due at `now`, then runs one iteration of the core.
  void turn(TimeNs now, SimLink& from_wire);
  [[nodiscard]] TimeNs next_turn(uint64_t turn_ns, const SimLink& from_wire) const;
  /// Destroys the core. Resources that it still holds are a leak.
  void end();

  ScriptedMemory memory;
  SimPort port;
  std::optional<transport::Core> core_storage;
  [[nodiscard]] transport::Core& core() { return *core_storage; }
  [[nodiscard]] const transport::Core& core() const { return *core_storage; }
  wire::MacAddress mac;
  wire::Gid gid;
  std::multimap<TimeNs, Frame> looped;
  std::vector<RaisedEvent> events;
  std::vector<transport::QpFailure> failures;
  uint32_t cq_errors = 0;
  uint32_t srq_events = 0;

 private:
  void deliver(const Frame& frame, std::vector<transport::RxFrame>& burst);
  Random random_;
  std::optional<TimeNs> last_turn_;
};

class Simulation {
 public:
  Simulation(const SimulationScript& script, uint64_t seed);
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

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
  [[nodiscard]] SimHost& peer_of(const SimHost& host) { return &host == &a ? b : a; }

  Trace trace;
  SimLink a_to_b, b_to_a;
  SimHost a, b;
  uint64_t steps = 0;
  static constexpr uint64_t kStepLimit = 4'000'000;

 private:
  Simulation(const SimulationScript& script, Random random);
  [[nodiscard]] SimPort::Wire wire_of(bool from_a);

  const uint64_t turn_ns_;
  TimeNs now_ = 1'000;
  std::multimap<TimeNs, std::function<void()>> actions_;
};

}  // namespace faultline::sim
