// SPDX-License-Identifier: BSD-3-Clause
// The copies of a burst of received frames while the core processes it. Owner: the engine's thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "pmd_glue/capture/capture.hpp"
#include "stack/transport/shared/port.hpp"

struct rte_mbuf;

namespace faultline::glue {

template <size_t most_frames>
class CapturedBurst {
 public:
  explicit CapturedBurst(Capture& capture) : capture_(capture) {}

  /// Takes the copies of `frames` (at most `most_frames`), since the core may free the mbufs.
  void begin(std::span<const transport::RxFrame> frames) {
    count_ = std::min(frames.size(), most_frames);
    for (size_t i = 0; i < count_; ++i)
      frames_[i] = {frames[i].handle, Capture::detach(*static_cast<rte_mbuf*>(frames[i].handle)),
                    kNotDropped};
  }
  /// The core has dropped the frame.
  void note_dropped(const void* handle, DropCounter why) {
    for (Frame& frame : std::span(frames_).first(count_))
      if (frame.handle == handle) frame.why = why;
  }
  /// Queues the copies, in the order of the burst.
  void end() {
    for (Frame& frame : std::span(frames_).first(count_)) capture_.settle(std::move(frame.copy), frame.why);
    count_ = 0;
  }

 private:
  struct Frame {
    const void* handle = nullptr;
    Capture::Copy copy;
    DropCounter why = kNotDropped;
  };

  Capture& capture_;
  std::array<Frame, most_frames> frames_;
  size_t count_ = 0;
};

}  // namespace faultline::glue
