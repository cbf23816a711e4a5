// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/world/simulation.hpp"

#include <utility>

namespace faultline::sim {

Simulation::Simulation(const SimulationScript& script, uint64_t seed) : Simulation(script, Random(seed)) {}

Simulation::Simulation(const SimulationScript& script, Random random)
    : World(script.turn_ns, script.keep_trace),
      a_to_b(script.a_to_b, random.fork(), 0, trace),
      b_to_a(script.b_to_a, random.fork(), 1, trace),
      a(script.a, random, wire_of(true)),
      b(script.b, random, wire_of(false)) {
  add_host(a, b_to_a, script.ipv6);
  add_host(b, a_to_b, script.ipv6);
}

SimPort::Wire Simulation::wire_of(bool from_a) {
  return [this, from_a](Frame frame, bool loopback) {
    if (loopback) return loop_back(from_a ? a : b, from_a ? 0 : 1, std::move(frame));
    return (from_a ? a_to_b : b_to_a).send(now(), std::move(frame));
  };
}

}  // namespace faultline::sim
