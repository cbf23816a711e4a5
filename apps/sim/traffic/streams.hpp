// SPDX-License-Identifier: BSD-3-Clause
// Patterns in which each connection sends message after message: permutation, incast, all-to-all.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/sim/traffic/pattern.hpp"

namespace faultline::fabric {

class Streams final : public Pattern {
 public:
  /// Sends messages on each of `routes`, each `traffic.connections` times. A connection begins at a random
  /// time within traffic.spread_ns.
  Streams(const TrafficParameters& traffic, const std::vector<Route>& routes, chaos::Random random);

  [[nodiscard]] TimeNs next_ns() const override;
  void on_time(TimeNs now, Starter& starter) override;
  void on_sent(const FlowKey& key, Starter& starter) override;

 private:
  struct Begin {
    TimeNs at_ns = 0;
    uint32_t connection = 0;
  };
  void start_next(uint32_t connection, Starter& starter);

  const TrafficParameters traffic_;
  std::vector<Begin> begins_;  // by time
  size_t next_begin_ = 0;
  std::vector<uint64_t> started_;  // by connection: messages
};

/// Each host sends to one other and receives from one other. One cycle through all hosts, in random order
/// (Sattolo's algorithm).
[[nodiscard]] std::vector<Route> permutation_routes(uint32_t hosts, chaos::Random random);
/// `senders` hosts, drawn at random from those other than the receiver, send to it.
[[nodiscard]] std::vector<Route> incast_routes(uint32_t hosts, uint32_t receiver, uint32_t senders,
                                               chaos::Random random);
/// Each host sends to each other, first to its next neighbour.
[[nodiscard]] std::vector<Route> all_to_all_routes(uint32_t hosts);

}  // namespace faultline::fabric
