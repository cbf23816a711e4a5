// SPDX-License-Identifier: BSD-3-Clause
// One direction of a link, with the output queue before it.
#pragma once

#include <cstdint>

#include "apps/sim/fabric/frame.hpp"
#include "apps/sim/fabric/queue_lengths.hpp"

namespace faultline::fabric {

/// Channels 2i and 2i + 1 are the two directions of link i.
[[nodiscard]] constexpr uint32_t opposite_of(uint32_t channel) {
  return channel ^ 1U;
}

struct alignas(64) Channel {
  uint32_t from = 0, to = 0;  ///< nodes
  TimePs delay_ps = 0;
  double ps_per_byte = 0;
  TimePs sends_until_ps = 0;  ///< end of the frame that is being sent; 0: none
  FrameList queue;            ///< with the frame that is being sent
  FrameList under_way;
  uint64_t queued_bytes = 0;
  uint32_t queued_frames = 0;
  bool is_up = true;
  bool is_paused = false;   ///< by PFC of the receiver
  bool pause_sent = false;  ///< the receiver wants it paused
  /// Bytes in the queues of the receiving switch that came by this channel.
  uint64_t held_bytes = 0;
  uint64_t sent_frames = 0;
  uint64_t sent_bytes = 0;
  QueueLengths lengths;

  uint64_t dropped_frames = 0;  ///< by its full queue or buffer
  uint64_t lost_frames = 0;     ///< queued or under way when the link failed
  uint64_t marked_frames = 0;
  uint64_t pauses = 0;
  TimePs paused_ps = 0;
  TimePs paused_since_ps = 0;

  /// Fetches the lines that an event of the channel uses, before it is due.
  void prefetch() const {
    constexpr uint32_t kLines = 3, kLineBytes = 64;
    for (uint32_t i = 0; i < kLines; ++i)
      __builtin_prefetch(reinterpret_cast<const uint8_t*>(this) + i * kLineBytes, 1);
  }
  [[nodiscard]] bool is_sending() const { return sends_until_ps != 0; }
  /// Returns how long the link is occupied by a frame.
  [[nodiscard]] TimePs time_of(uint32_t bytes) const {
    return static_cast<TimePs>(static_cast<double>(bytes + kLinkOverheadBytes) * ps_per_byte);
  }
};

}  // namespace faultline::fabric
