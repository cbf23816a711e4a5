// SPDX-License-Identifier: BSD-3-Clause
// Two hosts and a wire between them. The scripts and one seed determine everything.
#pragma once

#include <cstdint>

#include "tests/sim/world/world.hpp"

namespace faultline::sim {

struct SimulationScript {
  HostScript a, b;
  LinkScript a_to_b, b_to_a;
  bool ipv6 = false;
  bool keep_trace = true;
  uint64_t turn_ns = 200;  ///< duration of one poll loop iteration
};

class Simulation final : public World {
 public:
  Simulation(const SimulationScript& script, uint64_t seed);

  [[nodiscard]] SimHost& peer_of(const SimHost& host) { return &host == &a ? b : a; }

  SimLink a_to_b, b_to_a;
  SimHost a, b;

 private:
  Simulation(const SimulationScript& script, Random random);
  [[nodiscard]] SimPort::Wire wire_of(bool from_a);
};

}  // namespace faultline::sim
