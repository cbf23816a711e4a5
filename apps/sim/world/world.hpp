// SPDX-License-Identifier: BSD-3-Clause
// The whole simulation: hosts, fabric and traffic, and the clock that only events advance. A description and
// its seed determine everything. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "apps/sim/description/description.hpp"
#include "apps/sim/fabric/fabric.hpp"
#include "apps/sim/host/host.hpp"
#include "apps/sim/traffic/pattern.hpp"
#include "apps/sim/world/flow.hpp"

namespace faultline::fabric {

/// What is recorded: the connections of one host.
struct Recorder {
  uint32_t host = 0;
  record::RingWriter* ring = nullptr;  ///< outlives the world; nullptr: nothing is recorded
};

class World final : private Hosts, private Program, private Starter {
 public:
  /// Builds the fabric and connects the hosts. `description` outlives the world. Throws DescriptionError for
  /// traffic that the limits of a core exclude.
  explicit World(const Description& description, const Recorder& recorder = {},
                 std::pmr::memory_resource* memory = std::pmr::new_delete_resource());
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Runs until the duration is over, or until the pattern starts no more flows and all have ended.
  void run();

  [[nodiscard]] const Description& description() const { return description_; }
  [[nodiscard]] const Fabric& fabric() const { return fabric_; }
  [[nodiscard]] std::span<const std::unique_ptr<Host>> hosts() const { return hosts_; }
  [[nodiscard]] const std::vector<Route>& routes() const { return pattern_->routes(); }
  [[nodiscard]] std::span<const Flow> flows() const { return flows_; }
  [[nodiscard]] std::span<const QueueSample> samples() const { return samples_; }
  [[nodiscard]] uint64_t rounds() const { return pattern_->rounds(); }
  [[nodiscard]] TimeNs now_ns() const { return ns_of(now_ps_); }
  [[nodiscard]] uint64_t events() const { return events_.added(); }

 private:
  struct Connection {
    transport::QueuePair* requester = nullptr;
    transport::QueuePair* responder = nullptr;
    uint32_t first_waiting = kNoFlow;
    uint32_t last_waiting = kNoFlow;
    uint32_t posted = 0;
    uint64_t retransmits = 0;  ///< as of the last completion
    bool is_broken = false;
  };

  void on_frame(uint32_t host, Frame& frame, TimePs now_ps) override;
  void on_frame_sent(uint32_t host, TimePs now_ps) override;
  void on_completion(uint32_t host, const transport::Completion& completion, TimePs now_ps) override;
  void start(const FlowKey& key, uint32_t bytes) override;

  void make_hosts(const Recorder& recorder);
  void connect(uint32_t index, chaos::Random& random);
  void look_ahead() const;
  void handle(const Event& event);
  void plan_traffic();
  void sample();
  void post_waiting(uint32_t index);
  void on_send_completion(const transport::Completion& completion);
  void on_receive_completion(uint32_t host, const transport::Completion& completion);
  void fail_waiting(Connection& connection);
  /// The host that posts the sends of a connection: of a READ, the one to which the data flows.
  [[nodiscard]] uint32_t requester_of(const Route& route) const {
    return reads() ? route.destination : route.source;
  }
  [[nodiscard]] uint32_t responder_of(const Route& route) const {
    return reads() ? route.source : route.destination;
  }
  [[nodiscard]] bool reads() const { return description_.traffic.operation == Operation::read; }
  [[nodiscard]] bool notices() const {
    const Operation operation = description_.traffic.operation;
    return operation == Operation::write_imm || operation == Operation::send;
  }

  const Description& description_;
  chaos::Random random_;
  EventQueue events_;
  TimePs now_ps_ = 0;
  Fabric fabric_;
  BufferPool buffers_;
  std::pmr::memory_resource* const memory_;
  std::unique_ptr<Pattern> pattern_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<Connection> connections_;
  std::vector<Flow> flows_;
  uint64_t open_flows_ = 0;
  std::vector<QueueSample> samples_;
};

}  // namespace faultline::fabric
