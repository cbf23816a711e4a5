// SPDX-License-Identifier: BSD-3-Clause
// The pairs of seats that talk over the switch, and which of them have a direct link. A pair gets a link at
// its first frame; a pair whose link was ended by a violation gets no other one until either process has
// left.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "apps/switch/seats.hpp"

namespace faultline::switching {

class LinkedPairs {
 public:
  using Pair = Seats::Pair;
  using LinkState = Seats::LinkState;

  /// True if the pair has a link, or is barred from one.
  [[nodiscard]] bool is_known(PortIndex one, PortIndex other) const { return known_[one].test(other); }
  void add(PortIndex one, PortIndex other) {
    mark(one, other, true);
    added_.emplace_back(one, other);
  }
  [[nodiscard]] std::vector<Pair> take_new() { return std::exchange(added_, {}); }
  void note(const Pair& pair, LinkState state) {
    const auto [one, other] = pair;
    if (one >= kMaxPorts || other >= kMaxPorts || one == other) return;
    const bool is_barred = barred_[one].test(other);
    if (state == LinkState::barred) {
      barred_[one].set(other);
      barred_[other].set(one);
    }
    mark(one, other, state != LinkState::none || is_barred);
  }
  /// Returns the seats with a link to this one.
  [[nodiscard]] PortSet linked_to(PortIndex port) const { return known_[port] & ~barred_[port]; }
  void leave(PortIndex port) {
    for_each_port(known_[port], [&](PortIndex other) { known_[other].reset(port); });
    for_each_port(barred_[port], [&](PortIndex other) { barred_[other].reset(port); });
    known_[port].reset();
    barred_[port].reset();
    std::erase_if(added_, [&](const Pair& pair) { return pair.first == port || pair.second == port; });
  }

 private:
  void mark(PortIndex one, PortIndex other, bool known) {
    known_[one].set(other, known);
    known_[other].set(one, known);
  }

  std::vector<PortSet> known_ = std::vector<PortSet>(kMaxPorts);
  std::vector<PortSet> barred_ = std::vector<PortSet>(kMaxPorts);
  std::vector<Pair> added_;
};

}  // namespace faultline::switching
