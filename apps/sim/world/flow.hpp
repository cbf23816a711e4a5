// SPDX-License-Identifier: BSD-3-Clause
// A flow: one message of a connection, and what became of it.
#pragma once

#include <cstdint>

#include "stack/base/time.hpp"

namespace faultline::fabric {

enum class FlowState : uint8_t {
  waiting,  ///< for its turn on the connection
  posted,
  done,
  failed  ///< the connection broke: its retries were used up
};

inline constexpr uint32_t kNoFlow = ~0U;

struct Flow {
  TimeNs start_ns = 0;     ///< when the pattern started it
  TimeNs end_ns = kNever;  ///< completion at the requester
  uint32_t connection = 0;
  uint32_t tag = 0;  ///< the pattern's own
  uint32_t bytes = 0;
  /// Packets that the connection sent again between the completion before this one and this one.
  uint32_t retransmits = 0;
  uint32_t next = kNoFlow;  ///< that waits for the same connection
  FlowState state = FlowState::waiting;
};

/// The length of a queue at a time.
struct QueueSample {
  TimeNs time_ns = 0;
  uint32_t channel = 0;
  uint64_t bytes = 0;
};

}  // namespace faultline::fabric
