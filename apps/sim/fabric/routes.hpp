// SPDX-License-Identifier: BSD-3-Clause
// Shortest paths of a topology: for each switch and each host, the channels that lead nearer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apps/sim/description/description.hpp"

namespace faultline::fabric {

class Routes {
 public:
  /// Computes all routes over links for which `is_up` is true.
  Routes(const Topology& topology, const std::vector<bool>& is_up);

  /// Returns the channels from a switch that are on a shortest path to a host, ascending; empty if no path
  /// exists.
  [[nodiscard]] std::span<const uint32_t> choices(uint32_t node, uint32_t host) const {
    const Group group = groups_[table_[size_t{node - hosts_} * hosts_ + host]];
    return {channels_.data() + group.first, group.count};
  }
  /// Returns the channel for a flow: ECMP by the flow's hash, with other results in each switch. The span of
  /// choices must not be empty.
  [[nodiscard]] static uint32_t choose(std::span<const uint32_t> choices, uint32_t node, uint32_t flow_hash) {
    if (choices.size() == 1) return choices[0];
    // The finalizer of MurmurHash3, over flow and switch: flows that one switch sends to the same port are
    // spread again by the next.
    uint64_t mixed = (uint64_t{node} << 32 | flow_hash) + 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ mixed >> 33) * 0xff51afd7ed558ccdU;
    mixed = (mixed ^ mixed >> 33) * 0xc4ceb9fe1a85ec53U;
    mixed ^= mixed >> 33;
    return choices[(mixed >> 32) * choices.size() >> 32];
  }

 private:
  struct Group {
    uint32_t first = 0;
    uint32_t count = 0;
  };

  uint32_t hosts_;
  std::vector<uint32_t> table_;  // by switch and host: a group
  std::vector<Group> groups_;
  std::vector<uint32_t> channels_;
};

}  // namespace faultline::fabric
