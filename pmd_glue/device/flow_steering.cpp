// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/device/flow_steering.hpp"

#include <algorithm>

namespace faultline::glue {

FlowSteering::FlowSteering(const EthernetPort& port, RssTable& table, HandOver& hand_over)
    : port_(port), table_(table), hand_over_(hand_over), thresholds_(table.entry_count(), kFirstThreshold) {}

size_t FlowSteering::update() {
  size_t changed = 0;
  for (size_t entry = 0; entry < thresholds_.size(); ++entry) {
    const uint32_t receiver = port_.receiver_of(table_.queues()[entry]);
    FlowVotes& votes = *hand_over_.votes(receiver);
    const FlowVotes::Vote vote = votes.read(entry);
    // Queue i is core i's; a core beyond the port's queues has none.
    if (vote.weight < thresholds_[entry] || vote.owner == receiver || vote.owner >= port_.receive_queues())
      continue;
    votes.clear(entry);
    hand_over_.votes(vote.owner)->clear(entry);  // of an earlier time
    thresholds_[entry] = std::min(thresholds_[entry] * 2, FlowVotes::kMostWeight);
    if (table_.point(entry, static_cast<uint16_t>(vote.owner)) == 0) ++changed;
  }
  return changed;
}

}  // namespace faultline::glue
