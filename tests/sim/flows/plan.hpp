// SPDX-License-Identifier: BSD-3-Clause
// The memory and traffic of one seed, drawn after its fabric.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/flows/datagram_flow.hpp"
#include "tests/sim/flows/fabric.hpp"
#include "tests/sim/flows/flow.hpp"
#include "tests/sim/flows/receive_pool.hpp"

namespace faultline::sim {

/// The traffic of one seed over a fabric.
class Plan {
 public:
  Plan(const Fabric& fabric, World& world, Random random);
  /// Returns an empty string, or why the setup failed.
  [[nodiscard]] const std::string& error() const { return error_; }

  std::vector<std::unique_ptr<Endpoint>> ends;
  std::vector<std::unique_ptr<transport::CompletionQueue>> shared_queues;  ///< one per host, or none
  std::vector<std::unique_ptr<transport::CompletionQueue>> pool_queues;    ///< of pools, without the former
  std::vector<std::unique_ptr<Flow>> flows;
  std::vector<std::unique_ptr<DatagramFlow>> datagrams;
  std::vector<std::unique_ptr<ReceivePool>> pools;

 private:
  struct HostMemory {
    std::vector<Region*> local, remote;
    Region* not_permitted = nullptr;
  };
  void add_regions(SimHost& host);
  [[nodiscard]] HostMemory& memory_of(const Endpoint& end);
  /// Picks the first host of a connection, or with `other` a host that is not `other`. Of two hosts: a, b.
  [[nodiscard]] SimHost& pick_host(const SimHost* other);
  [[nodiscard]] transport::CompletionQueue* shared_queue_of(const SimHost& host) const;
  [[nodiscard]] bool is_dead(const SimHost& host) const;
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
  // Traffic of three or more hosts (many_hosts.cpp).
  [[nodiscard]] bool has_many_hosts() const { return world_.hosts().size() > 2; }
  void add_traffic_of_many();
  void move_to_another_peer(Endpoint& a, Endpoint& b, const EndpointScript& script,
                            const ConnectionScript& connection);
  [[nodiscard]] transport::CompletionQueue* queue_of_pool(const SimHost& host);
  /// Picks two to six hosts other than `host`, in any order.
  [[nodiscard]] std::vector<SimHost*> pick_peers(const SimHost* host);
  void add_pool_of_connections(transport::QpType type);
  void fail_in_pool(Flow& flow);
  void add_group_of_datagrams();
  void add_pool_of_unreliable();
  void fill_pool(ReceivePool& pool, size_t count, uint32_t room, bool late);
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
  [[nodiscard]] ConnectionScript draw_connection();
  void add_datagrams(transport::QpType type);
  void fill_datagram_flow(DatagramFlow& flow, uint64_t count);
  [[nodiscard]] PlannedSend draw_datagram(const Endpoint& from, const Endpoint& to, uint32_t length);

  const Fabric& fabric_;
  World& world_;
  Random random_;
  std::string error_;
  SimHost* favourite_ = nullptr;      ///< has a part in most connections; nullptr: none has
  std::vector<HostMemory> memories_;  ///< by host
  std::vector<HostMemory> lost_;      ///< by host: for the connection whose memory is taken away
  bool on_lost_memory_ = false;       ///< the connection being planned is that one
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
