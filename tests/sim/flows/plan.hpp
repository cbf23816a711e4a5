// SPDX-License-Identifier: BSD-3-Clause
// Draws a scenario from a seed: the fabric first, then memory and traffic.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/flows/datagram_flow.hpp"
#include "tests/sim/flows/flow.hpp"

namespace faultline::sim {

/// Subject of the whole seed.
enum class Theme : uint8_t {
  mixed,
  one_failure,
  dead_peer,
  reborn,  ///< a connection ends during traffic and another replaces it
  odp_mix  ///< the program changes its mappings during traffic; has a separate range of seeds
};

/// Planned cause of failure of one connection.
enum class Failure : uint8_t {
  bad_lkey,
  bad_rkey,
  remote_range,
  not_permitted,
  receive_too_small,
  local_hole,
  remote_hole,
  receive_hole,
  rnr_exhausted
};

struct Fabric {
  SimulationScript script;
  Theme theme = Theme::mixed;
  Failure failure = Failure::bad_lkey;
  bool harmless_links = false;
  bool faults = false;      ///< on-demand regions are in use
  bool takes_away = false;  ///< memory, permanently or for a while; with odp_mix
  uint8_t timeout = 14;
  uint64_t spread_ns = 200'000;  ///< posts are spread over this time
};

[[nodiscard]] Fabric draw_fabric(Random& random, bool odp_mix);
[[nodiscard]] std::string describe(const Fabric& fabric);

/// The traffic of one seed over a fabric.
class Plan {
 public:
  Plan(const Fabric& fabric, Simulation& simulation, Random random);
  /// Returns an empty string, or why the setup failed.
  [[nodiscard]] const std::string& error() const { return error_; }

  std::vector<std::unique_ptr<Endpoint>> ends;
  std::vector<std::unique_ptr<transport::CompletionQueue>> shared_queues;  ///< one per host, or none
  std::vector<std::unique_ptr<Flow>> flows;
  std::vector<std::unique_ptr<DatagramFlow>> datagrams;

 private:
  struct HostMemory {
    std::vector<Region*> local, remote;
    Region* not_permitted = nullptr;
  };
  void add_regions(SimHost& host);
  [[nodiscard]] HostMemory& memory_of(const Endpoint& end);
  [[nodiscard]] uint64_t place(Region& region, uint32_t length);
  /// Picks a region; with `steady`, one whose bytes only packets change.
  [[nodiscard]] Region& pick(const std::vector<Region*>& regions, bool steady);
  [[nodiscard]] std::vector<transport::Sge> split(const Endpoint& end, uint32_t length, bool steady = false);
  [[nodiscard]] uint32_t draw_length(uint32_t mtu);
  [[nodiscard]] TimeNs draw_time() { return start_ns_ + random_.below(fabric_.spread_ns); }
  void add_connection(bool failing);
  void add_flows(Endpoint& a, Endpoint& b, const ConnectionScript& connection, bool failing, bool one_way,
                 bool a_first, bool signal_all);
  /// Keeps the old connection for at least `life_ns`. Returns the time at which the new one begins.
  TimeNs end_and_begin_again(Endpoint& a, Endpoint& b, ConnectionScript connection, bool signal_all,
                             TimeNs life_ns);
  // The ODP mix (odp_mix.cpp).
  void add_connection_on_lost_memory();
  void add_lost_regions(SimHost& host);
  [[nodiscard]] Region* needed_by(Flow& flow, const PlannedSend& send, uint64_t& va);
  void take_away(TimeNs until_ns, Flow& flow);
  void run_program(SimHost& host);
  void fill_flow(Flow& flow, uint32_t mtu, bool failing);
  void add_send(Flow& flow, transport::SendOpcode opcode, uint32_t length);
  void spoil(Flow& flow, uint32_t mtu);
  void set_times(Flow& flow);
  void plan_answered(Flow& flow, PlannedSend& send);
  void add_datagrams(transport::QpType type);
  [[nodiscard]] PlannedSend draw_datagram(const Endpoint& from, const Endpoint& to, uint32_t length);

  const Fabric& fabric_;
  Simulation& simulation_;
  Random random_;
  std::string error_;
  HostMemory memory_a_, memory_b_;
  HostMemory lost_a_, lost_b_;   ///< for the connection whose memory is taken away
  bool on_lost_memory_ = false;  ///< the connection being planned is that one
  std::vector<Region*> lost_regions_;
  uint32_t next_flow_ = 1;
  TimeNs start_ns_;  ///< earliest post time of the flow being filled
  struct Written {
    uint64_t va;
    uint32_t rkey;
    uint32_t length;
    size_t send;
  };
  struct Counter {
    uint64_t va;
    uint32_t rkey;
    uint64_t value;
  };
  std::vector<Counter> counters_;  ///< counters of the flow being filled
  std::vector<Written> written_;   ///< destinations of the flow being filled that may be reused
};

}  // namespace faultline::sim
