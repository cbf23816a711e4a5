// SPDX-License-Identifier: BSD-3-Clause
// A simulated host: a transport core with a port, memory with page faults, and the events that it raises.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
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

  uint32_t number = 0;  ///< index in World::hosts()
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

}  // namespace faultline::sim
