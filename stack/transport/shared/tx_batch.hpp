// SPDX-License-Identifier: BSD-3-Clause
// Transmit batch of a core: allocates buffers from the port in bulk and sends frames in order. Frames that a
// full ring refuses stay in the batch and are sent first. Owner: the core's thread.
#pragma once

#include <array>
#include <cstdint>

#include "stack/transport/shared/counters.hpp"
#include "stack/transport/shared/port.hpp"

namespace faultline::transport {

class TxBatch {
 public:
  TxBatch(Port& port, CoreCounters& counters) : port_(port), counters_(counters) {}
  ~TxBatch();
  TxBatch(const TxBatch&) = delete;
  TxBatch& operator=(const TxBatch&) = delete;

  /// Returns an empty buffer for a frame, or nullptr while the port is full or out of buffers. Without a
  /// `commit` in between, a second call returns the same buffer.
  [[nodiscard]] TxFrame* next() {
    if (committed_ != allocated_ && !blocked_) [[likely]]
      return &frames_[committed_];
    return make_room();
  }
  /// Marks the buffer from `next` as a frame of `length_bytes`.
  void commit(uint32_t length_bytes, bool loopback) {
    TxFrame& frame = frames_[committed_++];
    frame.length_bytes = length_bytes;
    frame.loopback = loopback;
    ++counters_.tx_packets;
    counters_.tx_bytes += length_bytes;
  }
  /// Passes every committed frame to the port. Returns false while the port has not taken all of them.
  bool flush();
  /// True if `next` returned nullptr; it does so until the next flush.
  [[nodiscard]] bool is_blocked() const { return blocked_; }
  /// True if the port has not taken some committed frames yet.
  [[nodiscard]] bool has_unsent() const { return sent_ != committed_; }

 private:
  static constexpr uint32_t kFrames = 32;

  [[nodiscard]] TxFrame* make_room();

  Port& port_;
  CoreCounters& counters_;
  // frames_[sent_, committed_) wait for the port; frames_[committed_, allocated_) are empty.
  std::array<TxFrame, kFrames> frames_{};
  uint32_t sent_ = 0;
  uint32_t committed_ = 0;
  uint32_t allocated_ = 0;
  bool blocked_ = false;
};

}  // namespace faultline::transport
