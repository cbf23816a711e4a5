// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/flows/fabric.hpp"

#include <algorithm>

namespace faultline::sim {

namespace {

LinkScript draw_link(Random& random, bool harmless) {
  LinkScript link;
  link.delay_ns = random.between(200, 20'000);
  link.picoseconds_per_byte = random.between(100, 8'000);
  if (random.chance(250)) {
    link.changes_at_ns = random.between(10'000, 2'000'000);
    link.changed_delay_ns = random.between(200, 20'000);
    link.changed_picoseconds_per_byte = random.between(100, 8'000);
  }
  if (random.chance(300)) {
    link.bottleneck_picoseconds_per_byte = random.between(200, 10'000);
    link.queue_limit_bytes = random.between(20'000, 300'000);
    link.pause_when_full = harmless || random.chance(400);
    link.mark_from_bytes = random.between(1'000, 20'000);
    link.mark_all_bytes = link.mark_from_bytes + random.between(1'000, 100'000);
    link.mark_ratio = 0.1;
  }
  if (harmless) return link;
  if (random.chance(700)) link.loss_permille = random.between32(1, 60);
  if (random.chance(300)) link.duplicate_permille = random.between32(1, 60);
  if (random.chance(300)) link.corrupt_permille = random.between32(1, 40);
  if (random.chance(300)) link.jitter_ns = random.between(100, 20'000);
  if (random.chance(300)) link.late_permille = random.between32(1, 40);
  link.late_ns = random.between(5'000, 3'000'000);
  link.drop_mask = random.chance(300) ? random.next() & random.next() & random.next() & random.next() : 0;
  link.damage_limit = random.between32(1, 200);
  return link;
}

HostScript draw_host(Random& random, bool tight) {
  HostScript host;
  host.core.window_packets = random.chance(500) ? 256 : random.between32(2, 64);
  host.core.ack_every_packets = random.chance(500) ? 64 : random.between32(1, 32);
  host.core.park_packets_per_qp = random.chance(500) ? 64 : random.between32(1, 16);
  host.core.park_packets_total = random.chance(700) ? 1024 : random.between32(1, 32);
  host.core.park_deadline_ns = random.chance(500) ? 2'000'000 : random.between(5'000, 500'000);
  host.core.answer_deadline_ns = host.core.unreliable_deadline_ns = host.core.park_deadline_ns;
  host.core.fault_rnr_timer = static_cast<uint8_t>(random.between(1, 6));
  host.core.selective_ack = random.chance(700);
  host.core.early_probe = random.chance(800);
  host.core.reorder_packets_per_qp = random.chance(600) ? 256 : random.between32(1, 16);
  if (random.chance(300))
    host.core.congestion.algorithm =
        random.chance(500) ? transport::CongestionAlgorithm::dcqcn : transport::CongestionAlgorithm::swift;
  // One host in three serves some faults on its engine's own thread.
  if (const uint32_t draw = random.between32(1, 32); draw <= 10)
    host.memory.serve_at_once_permille = 100 * draw;
  host.core.wire_checksums = random.chance(500) ? 1 : 3;
  host.memory.page_bytes = 512U << random.below(4);
  host.memory.resolve_min_ns = random.between(500, 5'000);
  host.memory.resolve_max_ns =
      host.memory.resolve_min_ns + random.below(random.chance(300) ? 3'000'000 : 60'000);
  if (random.chance(300)) host.memory.queue_capacity = random.between32(1, 4);
  if (random.chance(300)) host.memory.queue_full_permille = random.between32(10, 400);
  if (random.chance(400)) {
    host.memory.invalidate_permille = random.between32(5, 200);
    host.memory.invalidations_limit = random.between32(1, 60);
  }
  if (tight) {
    host.port.tx_buffers = random.between32(1, 64);
    host.port.tx_ring = random.between32(1, 32);
    if (random.chance(500)) host.port.short_allocate_permille = random.between32(50, 500);
    if (random.chance(500)) host.port.short_transmit_permille = random.between32(50, 500);
  }
  return host;
}

}  // namespace

Fabric draw_fabric(Random& random, bool odp_mix) {
  Fabric fabric;
  const uint64_t theme = random.below(100);
  fabric.theme = theme < 70   ? Theme::mixed
                 : theme < 84 ? Theme::one_failure
                 : theme < 89 ? Theme::dead_peer
                              : Theme::reborn;
  if (odp_mix) fabric.theme = Theme::odp_mix;
  fabric.failure = static_cast<Failure>(random.below(static_cast<uint64_t>(Failure::rnr_exhausted) + 1));
  fabric.harmless_links = random.chance(400);
  fabric.faults = random.chance(700);
  const bool tight = random.chance(300);
  SimulationScript& script = fabric.script;
  script.a = draw_host(random, tight);
  script.b = draw_host(random, tight);
  script.a_to_b = draw_link(random, fabric.harmless_links);
  script.b_to_a = draw_link(random, fabric.harmless_links);
  script.ipv6 = random.chance(300);
  script.turn_ns = random.between(50, 1'000);
  // On lossy links time-outs are expected and must be short; on lossless links none may occur.
  fabric.timeout = static_cast<uint8_t>(fabric.harmless_links ? random.between(14, 18)
                                                              : random.between(fabric.faults ? 10 : 8, 12));
  fabric.spread_ns = random.chance(500) ? random.between(1, 20'000) : random.between(20'000, 2'000'000);
  // An RNR NAK for a fault counts like any other, so a scenario that counts RNR NAKs has no faults.
  if (fabric.theme == Theme::one_failure && fabric.failure == Failure::rnr_exhausted) fabric.faults = false;
  if (fabric.theme == Theme::dead_peer) {
    fabric.timeout = static_cast<uint8_t>(random.between(6, 10));
    const TimeNs dead = random.below(fabric.spread_ns * 2);
    script.a_to_b.dead_from_ns = dead;
    if (random.chance(500)) script.b_to_a.dead_from_ns = dead;
    fabric.harmless_links = false;
  }
  if (fabric.theme == Theme::reborn) {
    // Packets in flight when a connection ends arrive at its successor.
    fabric.harmless_links = false;
    // Delay-based rate control takes such jitter for queueing. Acknowledgements are slow, and that must not
    // exhaust the retries.
    fabric.timeout = static_cast<uint8_t>(random.between(13, 16));
    for (LinkScript* link : {&script.a_to_b, &script.b_to_a})
      if (random.chance(600)) link->jitter_ns = random.between(1'000, 300'000);
  }
  if (fabric.theme == Theme::odp_mix) {
    fabric.faults = true;
    fabric.takes_away = random.chance(500);
    if (fabric.takes_away) {
      // A connection that loses its memory fails, and another replaces it, as above.
      fabric.harmless_links = false;
      fabric.timeout = static_cast<uint8_t>(random.between(13, 16));
    }
  }
  fabric.paths_change = script.a_to_b.changes_at_ns != kNever || script.b_to_a.changes_at_ns != kNever;
  return fabric;
}

Fabric draw_network(Random& random) {
  Fabric fabric;
  const uint64_t theme = random.below(100);
  fabric.theme = theme < 50   ? Theme::mixed
                 : theme < 62 ? Theme::one_failure
                 : theme < 70 ? Theme::dead_peer
                 : theme < 90 ? Theme::reborn
                              : Theme::odp_mix;
  fabric.failure = static_cast<Failure>(random.below(static_cast<uint64_t>(Failure::rnr_exhausted) + 1));
  fabric.harmless_links =
      random.chance(400) && fabric.theme != Theme::dead_peer && fabric.theme != Theme::reborn;
  fabric.faults = fabric.theme == Theme::odp_mix || random.chance(700);
  if (fabric.theme == Theme::one_failure && fabric.failure == Failure::rnr_exhausted) fabric.faults = false;
  fabric.takes_away = fabric.theme == Theme::odp_mix && random.chance(500);
  if (fabric.takes_away) fabric.harmless_links = false;
  const bool tight = random.chance(300);
  NetworkScript& network = fabric.network;
  const uint64_t hosts = random.chance(600) ? random.between(3, 6) : random.between(7, 16);
  network.switches = random.between32(1, 3);
  network.ipv6 = random.chance(300);
  network.turn_ns = random.between(50, 1'000);
  const auto draw_one_of_many = [&] {
    LinkScript link = draw_link(random, fabric.harmless_links || random.chance(500));
    if (fabric.theme == Theme::reborn && random.chance(600)) link.jitter_ns = random.between(1'000, 300'000);
    fabric.paths_change |= link.changes_at_ns != kNever;
    return link;
  };
  for (uint64_t i = 0; i < hosts; ++i) {
    network.hosts.push_back(draw_host(random, tight));
    network.up.push_back(draw_one_of_many());
    network.down.push_back(draw_one_of_many());
  }
  for (uint32_t i = 0; i < network.switches * network.switches; ++i)
    network.between.push_back(draw_one_of_many());
  // Packets queue behind those of other hosts, and this must neither cause a time-out on a lossless network
  // nor exhaust the retries on another.
  fabric.timeout =
      static_cast<uint8_t>(fabric.harmless_links ? random.between(16, 18) : random.between(13, 15));
  fabric.spread_ns = random.chance(500) ? random.between(1, 20'000) : random.between(20'000, 2'000'000);
  if (fabric.theme == Theme::dead_peer) {
    fabric.dead_host = static_cast<uint32_t>(random.below(hosts));
    const TimeNs dead = random.below(fabric.spread_ns * 2);
    network.up[fabric.dead_host].dead_from_ns = dead;
    if (random.chance(500)) network.down[fabric.dead_host].dead_from_ns = dead;
  }
  return fabric;
}

std::unique_ptr<World> make_world(const Fabric& fabric, uint64_t seed) {
  if (fabric.network.hosts.empty()) return std::make_unique<Simulation>(fabric.script, seed);
  return std::make_unique<Network>(fabric.network, seed);
}

std::string describe(const Fabric& fabric) {
  static constexpr const char* kThemes[] = {"mixed", "one failure", "dead peer", "reborn", "ODP mix"};
  static constexpr const char* kFailures[] = {"bad lkey",      "bad rkey",          "remote range",
                                              "not permitted", "receive too small", "local hole",
                                              "remote hole",   "receive hole",      "RNR exhausted"};
  std::string text = kThemes[static_cast<size_t>(fabric.theme)];
  if (fabric.theme == Theme::one_failure)
    text += std::string(": ") + kFailures[static_cast<size_t>(fabric.failure)];
  if (fabric.takes_away) text += " with memory taken away";
  const auto link = [](const std::string& name, const LinkScript& script) {
    return "; " + name + " delay " + std::to_string(script.delay_ns) + " ns jitter " +
           std::to_string(script.jitter_ns) + " loss " + std::to_string(script.loss_permille) + " dup " +
           std::to_string(script.duplicate_permille) + " flip " + std::to_string(script.corrupt_permille) +
           " late " + std::to_string(script.late_permille) + " permille";
  };
  const auto host = [](const std::string& name, const HostScript& script) {
    return "; " + name + " window " + std::to_string(script.core.window_packets) + " ack every " +
           std::to_string(script.core.ack_every_packets) + " park " +
           std::to_string(script.core.park_packets_per_qp) + "/" +
           std::to_string(script.core.park_packets_total) + " for " +
           std::to_string(script.core.park_deadline_ns) + " ns, page " +
           std::to_string(script.memory.page_bytes) + " served in " +
           std::to_string(script.memory.resolve_min_ns) + ".." +
           std::to_string(script.memory.resolve_max_ns) + " ns, queue " +
           std::to_string(script.memory.queue_capacity) + ", up to " +
           std::to_string(script.memory.invalidations_limit) + " invalidations, tx " +
           std::to_string(script.port.tx_buffers) + "/" + std::to_string(script.port.tx_ring);
  };
  const NetworkScript& network = fabric.network;
  if (network.hosts.empty()) {
    text += link("a>b", fabric.script.a_to_b) + link("b>a", fabric.script.b_to_a);
    text += host("a", fabric.script.a) + host("b", fabric.script.b);
  } else {
    text +=
        "; " + std::to_string(network.hosts.size()) + " hosts, switches: " + std::to_string(network.switches);
    if (fabric.theme == Theme::dead_peer) text += "; h" + std::to_string(fabric.dead_host) + " dies";
  }
  for (size_t i = 0; i < network.hosts.size(); ++i) {
    const std::string name = "h" + std::to_string(i);
    text += "\n  " + host(name, network.hosts[i]).substr(2) + link(name + ">", network.up[i]) +
            link(">" + name, network.down[i]);
  }
  text += "; timeout " + std::to_string(fabric.timeout) + (fabric.faults ? "; on demand" : "; pinned");
  return text;
}

}  // namespace faultline::sim
