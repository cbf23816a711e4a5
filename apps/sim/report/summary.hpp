// SPDX-License-Identifier: BSD-3-Clause
// The figures of a run in short.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "apps/sim/world/world.hpp"

namespace faultline::fabric {

/// Mean, percentiles and maximum of a set of times.
struct Times {
  double mean_ns = 0;
  uint64_t p50_ns = 0;
  uint64_t p99_ns = 0;
  uint64_t max_ns = 0;
};

struct Summary {
  uint64_t seed = 0;
  std::string algorithm;
  uint64_t hosts = 0, switches = 0, links = 0, connections = 0;
  uint64_t virtual_ns = 0;
  uint64_t flows = 0, flows_done = 0, flows_failed = 0;
  Times completion;     ///< of flows that are done
  uint64_t rounds = 0;  ///< of an allreduce
  double goodput_gbps = 0;
  // Of hosts that received something.
  double host_least_gbps = 0, host_mean_gbps = 0, host_most_gbps = 0;
  uint64_t retransmits = 0, timeouts = 0, cnps = 0;
  FabricCounters fabric;
  uint64_t frames_inside = 0, bytes_inside = 0;
  uint64_t paused_ns = 0;              ///< of all channels
  double switch_ports_mean_bytes = 0;  ///< mean over the ports of switches that sent something
  // The switch port with the longest queue in the mean.
  std::string longest_port;
  double longest_mean_bytes = 0;
  uint64_t longest_p99_bytes = 0, longest_max_bytes = 0;
  uint64_t events = 0;
};

[[nodiscard]] Summary summarize(const World& world);
/// Returns the lines for people.
[[nodiscard]] std::string text_of(const Summary& summary);
[[nodiscard]] nlohmann::ordered_json json_of(const Summary& summary);

/// Returns "from->to".
[[nodiscard]] std::string port_name(const Topology& topology, const Channel& channel);

}  // namespace faultline::fabric
