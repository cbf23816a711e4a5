// SPDX-License-Identifier: BSD-3-Clause
// Draws the hosts and links of a seed, and the subject of its traffic.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/sim/world/network.hpp"
#include "tests/sim/world/simulation.hpp"

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
  SimulationScript script;  ///< of two hosts on one wire; unused if the network has hosts
  NetworkScript network;    ///< of three or more hosts
  Theme theme = Theme::mixed;
  Failure failure = Failure::bad_lkey;
  bool harmless_links = false;
  bool faults = false;        ///< on-demand regions are in use
  bool paths_change = false;  ///< a link becomes faster or slower, so packets may be reordered
  uint32_t dead_host = 0;     ///< of a network, with dead_peer
  bool takes_away = false;    ///< memory, permanently or for a while; with odp_mix
  uint8_t timeout = 14;
  uint64_t spread_ns = 200'000;  ///< posts are spread over this time
};

[[nodiscard]] Fabric draw_fabric(Random& random, bool odp_mix);
/// Draws a network of 3 to 16 hosts.
[[nodiscard]] Fabric draw_network(Random& random);
[[nodiscard]] std::unique_ptr<World> make_world(const Fabric& fabric, uint64_t seed);
[[nodiscard]] std::string describe(const Fabric& fabric);

}  // namespace faultline::sim
