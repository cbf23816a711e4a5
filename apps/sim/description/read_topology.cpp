// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/description/read_topology.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include <spdlog/fmt/fmt.h>

#include "apps/sim/description/generators.hpp"

namespace faultline::fabric {
namespace {

constexpr uint64_t kGigabit = 1'000'000'000;
constexpr double kLeastGbps = 0.001, kMostGbps = 10'000;
constexpr uint64_t kMostDelayNs = 1'000'000'000;

enum class Kind : uint8_t { leaf_spine, fat_tree, list };
constexpr std::array<std::string_view, 3> kKinds{"leaf-spine", "fat-tree", "list"};

using Indices = std::unordered_map<std::string_view, uint32_t>;

uint64_t read_rate(CheckedTable& reader, std::string_view key, double otherwise_gbps) {
  return static_cast<uint64_t>(reader.real(key, otherwise_gbps, kLeastGbps, kMostGbps) * kGigabit);
}

uint64_t read_delay(CheckedTable& reader, std::string_view key) {
  return reader.number(key, LinkKind().delay_ns, 0, kMostDelayNs);
}

uint32_t read_count(CheckedTable& reader, std::string_view key, uint64_t least, uint64_t most) {
  reader.require(key, fmt::format("give a whole number from {} to {}", least, most));
  return static_cast<uint32_t>(reader.number(key, 0, least, most));
}

/// Reads the kinds of links of a generator: to a host, and between switches.
void read_link_kinds(CheckedTable& reader, LinkKind& to_host, LinkKind& inside) {
  to_host.bits_per_s = read_rate(reader, "host_gbps", 10);
  to_host.delay_ns = read_delay(reader, "host_delay_ns");
  inside.bits_per_s = read_rate(reader, "fabric_gbps", 10);
  inside.delay_ns = read_delay(reader, "fabric_delay_ns");
}

Topology read_leaf_spine(CheckedTable& reader) {
  const uint32_t leaves = read_count(reader, "leaves", 1, kMostSwitches / 2);
  const uint32_t spines = read_count(reader, "spines", 1, kMostSwitches / 2);
  const uint32_t hosts = read_count(reader, "hosts_per_leaf", 1, kMostHosts);
  LinkKind to_host, inside;
  read_link_kinds(reader, to_host, inside);
  if (uint64_t{leaves} * hosts > kMostHosts)
    reader.fail("hosts_per_leaf", fmt::format("makes more than {} hosts; make it smaller", kMostHosts));
  return make_leaf_spine(leaves, spines, hosts, to_host, inside);
}

Topology read_fat_tree(CheckedTable& reader) {
  constexpr uint32_t kMostPorts = 40;  // 16,000 hosts, 2,000 switches
  const uint32_t k = read_count(reader, "k", 2, kMostPorts);
  if (k % 2 != 0) reader.fail("k", "must be even: half of a switch's ports lead up");
  LinkKind to_host, inside;
  read_link_kinds(reader, to_host, inside);
  return make_fat_tree(k, to_host, inside);
}

void add_named(CheckedTable& reader, std::string_view key, uint32_t most, Topology& topology,
               Indices& indices) {
  const std::vector<std::string> names = reader.texts(key);
  if (names.empty() || names.size() > most)
    reader.fail(key, fmt::format("must name 1 to {} nodes, such as [\"a\", \"b\"]", most));
  for (const std::string& name : names) {
    if (name.empty() || name.find_first_of(",\"\n") != std::string::npos)
      reader.fail(key, fmt::format("\"{}\" is no name: it is empty, or has a comma, quote or newline", name));
    topology.nodes.push_back({name});
  }
  indices.clear();
  for (uint32_t i = 0; i < topology.nodes.size(); ++i)
    if (!indices.emplace(topology.nodes[i].name, i).second)
      reader.fail(key, fmt::format("\"{}\" is named twice", topology.nodes[i].name));
}

uint32_t read_node(CheckedTable& reader, std::string_view key, const Indices& indices) {
  const std::string name = reader.required_text(key, "h0");
  const auto found = indices.find(name);
  if (found == indices.end())
    reader.fail(key, fmt::format("\"{}\" is neither a host nor a switch of [topology]", name));
  return found->second;
}

/// A host has one port, since its engine has one.
void check_host_links(const CheckedTable& root, const Topology& topology) {
  std::vector<uint32_t> links(topology.hosts);
  for (const Link& link : topology.links)
    for (const uint32_t end : {link.a, link.b})
      if (topology.is_host(end)) ++links[end];
  for (uint32_t host = 0; host < topology.hosts; ++host)
    if (links[host] != 1)
      root.fail("link",
                fmt::format("host \"{}\" has {} links; give it one", topology.nodes[host].name, links[host]));
}

Topology read_list(CheckedTable& root, CheckedTable& reader) {
  Topology topology;
  Indices indices;
  add_named(reader, "hosts", kMostHosts, topology, indices);
  topology.hosts = static_cast<uint32_t>(topology.nodes.size());
  add_named(reader, "switches", kMostSwitches, topology, indices);
  for (CheckedTable& row : root.tables("link")) {
    Link link;
    link.a = read_node(row, "from", indices);
    link.b = read_node(row, "to", indices);
    link.bits_per_s = read_rate(row, "gbps", 10);
    link.delay_ns = read_delay(row, "delay_ns");
    row.finish();
    if (link.a == link.b) row.fail("to", "is the node itself; name another");
    topology.links.push_back(link);
  }
  check_host_links(root, topology);
  return topology;
}

/// Returns the first link between two nodes.
std::optional<uint32_t> find_link(const Topology& topology, uint32_t a, uint32_t b) {
  for (uint32_t i = 0; i < topology.links.size(); ++i) {
    const Link& link = topology.links[i];
    if ((link.a == a && link.b == b) || (link.a == b && link.b == a)) return i;
  }
  return std::nullopt;
}

}  // namespace

Topology read_topology(CheckedTable& root) {
  CheckedTable reader = root.table("topology");
  root.require("topology", "write [topology] with kind = \"leaf-spine\", \"fat-tree\" or \"list\"");
  const auto kind = static_cast<Kind>(reader.choice("kind", kKinds, -1));
  if (kind != Kind::list && root.has("link"))
    root.fail("link", "is for a topology of kind list; a generator makes its own links");
  Topology topology = kind == Kind::leaf_spine ? read_leaf_spine(reader)
                      : kind == Kind::fat_tree ? read_fat_tree(reader)
                                               : read_list(root, reader);
  reader.finish();
  return topology;
}

std::vector<Failure> read_failures(CheckedTable& root, const Topology& topology) {
  Indices indices;
  for (uint32_t i = 0; i < topology.nodes.size(); ++i) indices.emplace(topology.nodes[i].name, i);
  std::vector<Failure> failures;
  for (CheckedTable& row : root.tables("failure")) {
    const uint32_t from = read_node(row, "from", indices);
    const uint32_t to = read_node(row, "to", indices);
    const std::optional<uint32_t> link = find_link(topology, from, to);
    if (!link) row.fail("to", "no link joins these two nodes");
    constexpr uint64_t kMost = uint64_t{1} << 50;
    Failure failure{.link = *link};
    row.require("down_ns", "give the time at which the link fails");
    row.read("down_ns", failure.down_ns, 0, kMost);
    row.read("up_ns", failure.up_ns, failure.down_ns + 1, kMost);
    row.finish();
    failures.push_back(failure);
  }
  return failures;
}

}  // namespace faultline::fabric
