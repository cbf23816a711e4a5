// SPDX-License-Identifier: BSD-3-Clause
// Generated topologies, shortest paths and ECMP.
#include "apps/sim/fabric/routes.hpp"

#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "apps/sim/description/generators.hpp"
#include "apps/sim/fabric/channel.hpp"

namespace faultline::fabric {
namespace {

std::vector<uint32_t> links_by_node(const Topology& topology) {
  std::vector<uint32_t> links(topology.nodes.size());
  for (const Link& link : topology.links)
    for (const uint32_t end : {link.a, link.b}) ++links[end];
  return links;
}

uint32_t end_of(const Topology& topology, uint32_t channel) {
  const Link& link = topology.links[channel / 2];
  return channel % 2 == 0 ? link.b : link.a;
}

/// Follows a flow from a host to another. Returns the nodes passed; stops at the 20th.
std::vector<uint32_t> follow(const Topology& topology, const Routes& routes, uint32_t from, uint32_t to,
                             uint32_t flow_hash) {
  std::vector<uint32_t> nodes;
  uint32_t node = 0;
  for (uint32_t i = 0; i < topology.links.size(); ++i)
    if (topology.links[i].a == from) node = topology.links[i].b;
  while (node != to && nodes.size() < 20) {
    nodes.push_back(node);
    const auto choices = routes.choices(node, to);
    if (choices.empty()) return {};
    node = end_of(topology, Routes::choose(choices, node, flow_hash));
  }
  return nodes;
}

TEST(Generators, MakeAFatTreeWhoseSwitchesHaveAllPortsInUse) {
  for (const uint32_t k : {2U, 4U, 8U, 16U}) {
    const Topology tree = make_fat_tree(k, {}, {});
    EXPECT_EQ(tree.hosts, k * k * k / 4);
    EXPECT_EQ(tree.nodes.size() - tree.hosts, k * k + k * k / 4);
    const std::vector<uint32_t> links = links_by_node(tree);
    for (uint32_t node = 0; node < links.size(); ++node)
      EXPECT_EQ(links[node], tree.is_host(node) ? 1 : k) << tree.nodes[node].name;
  }
  EXPECT_EQ(make_fat_tree(16, {}, {}).hosts, 1024U);
}

TEST(Generators, MakeALeafSpineWithOneLinkFromEachLeafToEachSpine) {
  const LinkKind slow{.bits_per_s = 1, .delay_ns = 2}, fast{.bits_per_s = 3, .delay_ns = 4};
  const Topology fabric = make_leaf_spine(3, 2, 5, slow, fast);
  EXPECT_EQ(fabric.hosts, 15U);
  EXPECT_EQ(fabric.nodes.size(), 15U + 3 + 2);
  std::set<std::pair<uint32_t, uint32_t>> pairs;
  for (const Link& link : fabric.links) {
    EXPECT_EQ(link.bits_per_s, fabric.is_host(link.a) ? 1U : 3U);
    EXPECT_EQ(link.delay_ns, fabric.is_host(link.a) ? 2U : 4U);
    pairs.emplace(link.a, link.b);
  }
  EXPECT_EQ(pairs.size(), 15U + 3 * 2);
  EXPECT_EQ(fabric.nodes[15].name, "leaf0");
  EXPECT_EQ(fabric.nodes[18].name, "spine0");
}

TEST(Routes, LeadEveryFlowToItsHostByAShortestPath) {
  const Topology tree = make_fat_tree(4, {}, {});
  const Routes routes(tree, std::vector<bool>(tree.links.size(), true));
  for (uint32_t from = 0; from < tree.hosts; ++from)
    for (uint32_t to = 0; to < tree.hosts; ++to) {
      if (from == to) continue;
      const size_t switches = from / 2 == to / 2 ? 1 : from / 4 == to / 4 ? 3 : 5;
      for (uint32_t hash = 0; hash < 8; ++hash)
        EXPECT_EQ(follow(tree, routes, from, to, hash).size(), switches) << from << " to " << to;
    }
}

TEST(Routes, SpreadFlowsEvenlyAndIndependentlyInEachSwitch) {
  const Topology tree = make_fat_tree(4, {}, {});
  const Routes routes(tree, std::vector<bool>(tree.links.size(), true));
  std::map<uint32_t, uint32_t> cores;
  constexpr uint32_t kFlows = 4000;
  for (uint32_t flow = 0; flow < kFlows; ++flow) ++cores[follow(tree, routes, 0, 15, flow * 0x9e3779b1U)[2]];
  ASSERT_EQ(cores.size(), 4U);  // of both switches below
  for (const auto& [core, flows] : cores) EXPECT_NEAR(flows, kFlows / 4, 120) << tree.nodes[core].name;
}

TEST(Routes, KeepAFlowOnOnePath) {
  const Topology tree = make_fat_tree(4, {}, {});
  const Routes routes(tree, std::vector<bool>(tree.links.size(), true));
  const Routes again(tree, std::vector<bool>(tree.links.size(), true));
  for (uint32_t hash = 0; hash < 100; ++hash)
    EXPECT_EQ(follow(tree, routes, 1, 14, hash), follow(tree, again, 1, 14, hash));
}

TEST(Routes, AvoidLinksThatAreDown) {
  const Topology fabric = make_leaf_spine(2, 2, 1, {}, {});
  std::vector<bool> is_up(fabric.links.size(), true);
  const uint32_t leaf0 = 2, spine1 = 5;
  const Routes whole(fabric, is_up);
  EXPECT_EQ(whole.choices(leaf0, 1).size(), 2U);
  for (uint32_t i = 0; i < fabric.links.size(); ++i)
    if (fabric.links[i].a == leaf0 && fabric.links[i].b == spine1) is_up[i] = false;
  const Routes less(fabric, is_up);
  ASSERT_EQ(less.choices(leaf0, 1).size(), 1U);
  EXPECT_EQ(fabric.nodes[end_of(fabric, less.choices(leaf0, 1)[0])].name, "spine0");
  is_up.assign(fabric.links.size(), false);
  EXPECT_TRUE(Routes(fabric, is_up).choices(leaf0, 1).empty());
}

}  // namespace
}  // namespace faultline::fabric
