// SPDX-License-Identifier: BSD-3-Clause
// The core's side of the port's transmit path: buffers in bulk from the port, frames in order to it, and what
// a full ring did not take kept to be sent first. Owner: the core's thread.
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

  /// An empty buffer to write a frame into, or nullptr while the port is full or out of buffers. Asking again
  /// without a `commit` gives the same buffer.
  [[nodiscard]] TxFrame* next() {
    if (committed_ != allocated_ && !blocked_) [[likely]]
      return &frames_[committed_];
    return make_room();
  }
  /// The buffer that `next` gave holds a frame of `length_bytes`.
  void commit(uint32_t length_bytes, bool loopback) {
    TxFrame& frame = frames_[committed_++];
    frame.length_bytes = length_bytes;
    frame.loopback = loopback;
    ++counters_.tx_packets;
    counters_.tx_bytes += length_bytes;
  }
  /// Hands everything committed to the port. False while the port has not taken it all.
  bool flush();
  /// `next` gave nothing: so it will until the next flush.
  [[nodiscard]] bool is_blocked() const { return blocked_; }
  /// Frames that a full port has not taken yet.
  [[nodiscard]] bool has_unsent() const { return sent_ != committed_; }

 private:
  static constexpr uint32_t kFrames = 32;

  [[nodiscard]] TxFrame* make_room();

  Port& port_;
  CoreCounters& counters_;
  // frames_[sent_, committed_) wait for the port, frames_[committed_, allocated_) are empty.
  std::array<TxFrame, kFrames> frames_{};
  uint32_t sent_ = 0;
  uint32_t committed_ = 0;
  uint32_t allocated_ = 0;
  bool blocked_ = false;
};

}  // namespace faultline::transport
