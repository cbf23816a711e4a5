// SPDX-License-Identifier: BSD-3-Clause
// Three or more hosts at one to three switches, each pair of which has a link. A switch stores a frame whole
// and appends it to the queue of its output. The scripts and one seed determine everything.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tests/sim/world/world.hpp"

namespace faultline::sim {

struct NetworkScript {
  std::vector<HostScript> hosts;
  std::vector<LinkScript> up, down;  ///< of each host: its links to and from its switch
  std::vector<LinkScript>
      between;            ///< of switches: from the first to the second at first * switches + second
  uint32_t switches = 1;  ///< host n is at switch n % switches
  bool ipv6 = false;
  bool keep_trace = true;
  uint64_t turn_ns = 200;  ///< duration of one poll loop iteration
};

class Network final : public World {
 public:
  Network(const NetworkScript& script, uint64_t seed);

 private:
  Network(const NetworkScript& script, Random random);
  [[nodiscard]] TimeNs next_at_switches() const override;
  void forward() override;
  SimLink& add_link(std::deque<SimLink>& links, const LinkScript& script, Random& random, std::string name);
  /// Forwards from `link`, at its end at a switch.
  void forward_from(SimLink& link, uint32_t at_switch);

  const uint32_t switches_;
  const bool ipv6_;
  std::deque<SimLink> up_, down_, between_;
  std::deque<SimHost> hosts_;
};

}  // namespace faultline::sim
