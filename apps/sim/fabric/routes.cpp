// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/fabric/routes.hpp"

#include <algorithm>
#include <map>

namespace faultline::fabric {
namespace {

constexpr uint32_t kFar = ~0U;

struct Neighbour {
  uint32_t node = 0;
  uint32_t channel = 0;  ///< to it
};
using Neighbours = std::vector<std::vector<Neighbour>>;

Neighbours neighbours_of(const Topology& topology, const std::vector<bool>& is_up) {
  Neighbours all(topology.nodes.size());
  for (uint32_t i = 0; i < topology.links.size(); ++i) {
    if (!is_up[i]) continue;
    const Link& link = topology.links[i];
    all[link.a].push_back({.node = link.b, .channel = 2 * i});
    all[link.b].push_back({.node = link.a, .channel = 2 * i + 1});
  }
  return all;
}

/// Returns the number of links from each node to `target`, through switches only.
std::vector<uint32_t> distances(const Topology& topology, const Neighbours& neighbours, uint32_t target) {
  std::vector<uint32_t> distance(topology.nodes.size(), kFar);
  std::vector<uint32_t> reached{target};
  distance[target] = 0;
  for (size_t i = 0; i < reached.size(); ++i) {
    const uint32_t node = reached[i];
    if (i != 0 && topology.is_host(node)) continue;  // a host forwards nothing
    for (const Neighbour& other : neighbours[node]) {
      if (distance[other.node] != kFar) continue;
      distance[other.node] = distance[node] + 1;
      reached.push_back(other.node);
    }
  }
  return distance;
}

}  // namespace

Routes::Routes(const Topology& topology, const std::vector<bool>& is_up) : hosts_(topology.hosts) {
  const Neighbours neighbours = neighbours_of(topology, is_up);
  const auto nodes = static_cast<uint32_t>(topology.nodes.size());
  table_.resize(size_t{nodes - hosts_} * hosts_);
  std::map<std::vector<uint32_t>, uint32_t> known;
  std::vector<uint32_t> choices;
  // Hosts of one switch share the distances from that switch.
  std::map<uint32_t, std::vector<uint32_t>> by_switch;
  for (uint32_t host = 0; host < hosts_; ++host) {
    if (!neighbours[host].empty()) {
      const uint32_t beside = neighbours[host][0].node;
      if (!by_switch.contains(beside)) by_switch.emplace(beside, distances(topology, neighbours, beside));
    }
    for (uint32_t node = hosts_; node < nodes; ++node) {
      choices.clear();
      if (!neighbours[host].empty()) {
        const uint32_t beside = neighbours[host][0].node;
        const std::vector<uint32_t>& distance = by_switch.at(beside);
        for (const Neighbour& other : neighbours[node]) {
          if (node == beside ? other.node == host
                             : distance[node] != kFar && !topology.is_host(other.node) &&
                                   distance[other.node] + 1 == distance[node])
            choices.push_back(other.channel);
        }
      }
      const auto [at, is_new] = known.emplace(choices, static_cast<uint32_t>(groups_.size()));
      if (is_new) {
        groups_.push_back({.first = static_cast<uint32_t>(channels_.size()),
                           .count = static_cast<uint32_t>(choices.size())});
        channels_.insert(channels_.end(), choices.begin(), choices.end());
      }
      table_[size_t{node - hosts_} * hosts_ + host] = at->second;
    }
  }
}

}  // namespace faultline::fabric
