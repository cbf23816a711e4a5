// SPDX-License-Identifier: BSD-3-Clause
// Topologies that a few numbers determine.
#pragma once

#include <cstdint>

#include "apps/sim/description/description.hpp"

namespace faultline::fabric {

/// Limits of a fabric. The table of routes has an entry for each switch and host.
inline constexpr uint32_t kMostHosts = 16'384;
inline constexpr uint32_t kMostSwitches = 4'096;

struct LinkKind {
  uint64_t bits_per_s = 10'000'000'000;
  uint64_t delay_ns = 1'000;
};

/// Returns a two-tier Clos: each leaf has `hosts_per_leaf` hosts and one link to each spine. Hosts are named
/// h0, h1, ...; switches leaf0, ... and spine0, ...
[[nodiscard]] Topology make_leaf_spine(uint32_t leaves, uint32_t spines, uint32_t hosts_per_leaf,
                                       const LinkKind& to_host, const LinkKind& to_spine);

/// Returns the fat-tree of switches with `k` ports (Al-Fares et al., SIGCOMM 2008), k even: k^3/4 hosts, k
/// pods of k/2 edge and k/2 aggregation switches, k^2/4 core switches. Switches are named edge0, ..., agg0,
/// ... and core0, ...
[[nodiscard]] Topology make_fat_tree(uint32_t k, const LinkKind& to_host, const LinkKind& inside);

}  // namespace faultline::fabric
