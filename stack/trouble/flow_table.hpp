// SPDX-License-Identifier: BSD-3-Clause
// What flows suffer for a time: partitions, rates, slow receivers. It holds no packet and has no clock.
// Calls must not overlap.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stack/base/time.hpp"
#include "stack/trouble/scenario.hpp"

namespace faultline::trouble {

/// A packet on its way. The text needs to live only during the call.
struct PacketOnWay {
  bool is_outbound = false;
  Object object;          ///< the local QP; the device for a packet of none
  std::string_view peer;  ///< IP address of the other end
  uint64_t frame_bytes = 0;
};

class FlowTable {
 public:
  /// What happens to one packet.
  struct Passage {
    bool is_lost = false;
    uint64_t delay_ns = 0;
  };

  /// Begins an action for the packet's flow; the action outlives the table. False if it holds there already.
  [[nodiscard]] bool begin(const Action& action, const PacketOnWay& packet, TimeNs now);
  /// Passes the packet through all that its flow suffers, in the order of the beginnings.
  [[nodiscard]] Passage pass(const PacketOnWay& packet, TimeNs now);

 private:
  struct Flow {
    const Action* action = nullptr;
    bool is_outbound = false;
    Object object;
    std::string peer;
    TimeNs until = 0;    ///< the action ends then
    TimeNs free_at = 0;  ///< of rate and slow: the packets so far have been served then
  };
  [[nodiscard]] static bool has(const Flow& flow, const PacketOnWay& packet);
  /// Returns the time at which the packet leaves the flow's queue; at which it enters: `at`. False: no room.
  [[nodiscard]] static bool pass_queue(Flow& flow, uint64_t frame_bytes, TimeNs& at);

  std::vector<Flow> flows_;
};

}  // namespace faultline::trouble
