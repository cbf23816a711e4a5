// SPDX-License-Identifier: BSD-3-Clause
// Allreduce of a vector that each host has. Only its messages are simulated, not the additions.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/sim/traffic/pattern.hpp"

namespace faultline::fabric {

/// The ring algorithm (Patarasuk, Yuan, JPDC 2009): 2 (n - 1) steps, in each of which every host sends an
/// n-th of the vector to the next host. A host takes its next step when it has received the one before.
/// Several connections divide the vector into as many rings.
class RingAllreduce final : public Pattern {
 public:
  RingAllreduce(const TrafficParameters& traffic, uint32_t hosts);

  [[nodiscard]] TimeNs next_ns() const override { return has_begun_ ? kNever : 0; }
  void on_time(TimeNs now, Starter& starter) override;
  void on_delivered(const FlowKey& key, Starter& starter) override;
  [[nodiscard]] uint64_t rounds() const override;

 private:
  const TrafficParameters traffic_;
  const uint32_t hosts_;
  const uint32_t steps_;
  const uint32_t bytes_;  // of a message
  bool has_begun_ = false;
  std::vector<uint64_t> finished_;  // by connection: rounds of its receiver
};

/// A binary tree: chunks of the vector travel from the leaves to the root, added up on the way, and the
/// results back.
class TreeAllreduce final : public Pattern {
 public:
  TreeAllreduce(const TrafficParameters& traffic, uint32_t hosts);

  [[nodiscard]] TimeNs next_ns() const override { return has_begun_ ? kNever : 0; }
  void on_time(TimeNs now, Starter& starter) override;
  void on_delivered(const FlowKey& key, Starter& starter) override;
  [[nodiscard]] uint64_t rounds() const override;

 private:
  // Connection 2 (i - 1) leads from host i to its parent, and the one after it back.
  [[nodiscard]] static uint32_t up_from(uint32_t host) { return 2 * (host - 1); }
  [[nodiscard]] static uint32_t down_to(uint32_t host) { return 2 * (host - 1) + 1; }
  [[nodiscard]] uint32_t children_of(uint32_t host) const;
  [[nodiscard]] uint32_t bytes_of(uint32_t chunk) const;
  void begin_round(Starter& starter);
  void send_up(uint32_t host, uint32_t chunk, Starter& starter);
  void send_down(uint32_t host, uint32_t chunk, Starter& starter);

  const TrafficParameters traffic_;
  const uint32_t hosts_;
  const uint32_t chunks_;
  bool has_begun_ = false;
  std::vector<uint8_t> arrived_;  // by host and chunk: from how many children
  uint64_t results_ = 0;          // chunks that hosts other than the root have back in this round
  uint64_t rounds_ = 0;
};

}  // namespace faultline::fabric
