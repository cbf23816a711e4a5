// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/description/generators.hpp"

#include <string>

namespace faultline::fabric {
namespace {

/// Appends nodes `prefix`0, `prefix`1, ... and returns the index of the first.
uint32_t add_nodes(Topology& topology, const std::string& prefix, uint32_t count) {
  const auto first = static_cast<uint32_t>(topology.nodes.size());
  for (uint32_t i = 0; i < count; ++i) topology.nodes.push_back({prefix + std::to_string(i)});
  return first;
}

void add_link(Topology& topology, uint32_t a, uint32_t b, const LinkKind& kind) {
  topology.links.push_back({.a = a, .b = b, .bits_per_s = kind.bits_per_s, .delay_ns = kind.delay_ns});
}

}  // namespace

Topology make_leaf_spine(uint32_t leaves, uint32_t spines, uint32_t hosts_per_leaf, const LinkKind& to_host,
                         const LinkKind& to_spine) {
  Topology topology;
  topology.hosts = leaves * hosts_per_leaf;
  add_nodes(topology, "h", topology.hosts);
  const uint32_t leaf = add_nodes(topology, "leaf", leaves);
  const uint32_t spine = add_nodes(topology, "spine", spines);
  for (uint32_t host = 0; host < topology.hosts; ++host)
    add_link(topology, host, leaf + host / hosts_per_leaf, to_host);
  for (uint32_t i = 0; i < leaves; ++i)
    for (uint32_t j = 0; j < spines; ++j) add_link(topology, leaf + i, spine + j, to_spine);
  return topology;
}

Topology make_fat_tree(uint32_t k, const LinkKind& to_host, const LinkKind& inside) {
  const uint32_t half = k / 2;
  Topology topology;
  topology.hosts = k * half * half;
  add_nodes(topology, "h", topology.hosts);
  const uint32_t edge = add_nodes(topology, "edge", k * half);
  const uint32_t aggregation = add_nodes(topology, "agg", k * half);
  const uint32_t core = add_nodes(topology, "core", half * half);
  for (uint32_t host = 0; host < topology.hosts; ++host)
    add_link(topology, host, edge + host / half, to_host);
  for (uint32_t pod = 0; pod < k; ++pod)
    for (uint32_t i = 0; i < half; ++i)
      for (uint32_t j = 0; j < half; ++j) {
        add_link(topology, edge + pod * half + i, aggregation + pod * half + j, inside);
        // The i-th aggregation switch of every pod reaches the i-th group of core switches.
        add_link(topology, aggregation + pod * half + i, core + i * half + j, inside);
      }
  return topology;
}

}  // namespace faultline::fabric
