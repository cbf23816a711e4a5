// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/shared/tx_batch.hpp"

#include <algorithm>

namespace faultline::transport {

TxBatch::~TxBatch() {
  port_.free_unsent(std::span(frames_).subspan(sent_, allocated_ - sent_));
}

TxFrame* TxBatch::make_room() {
  if (blocked_) return nullptr;
  blocked_ = committed_ == kFrames && !flush();
  if (blocked_) return nullptr;
  if (committed_ == allocated_) {
    const size_t got = port_.allocate(std::span(frames_).subspan(allocated_));
    allocated_ += static_cast<uint32_t>(got);
    if (got == 0) {
      ++counters_.tx_no_buffers;
      blocked_ = true;
      return nullptr;
    }
  }
  return &frames_[committed_];
}

bool TxBatch::flush() {
  if (committed_ == 0) {
    blocked_ = false;
    return true;
  }
  if (has_unsent())
    sent_ += static_cast<uint32_t>(port_.transmit(std::span(frames_).subspan(sent_, committed_ - sent_)));
  blocked_ = has_unsent() && sent_ != 0;  // unsent frames are sent first
  if (has_unsent()) {
    ++counters_.tx_ring_full;
    return false;
  }
  // Moves the empty buffers to the front for the next burst.
  std::copy(frames_.begin() + committed_, frames_.begin() + allocated_, frames_.begin());
  allocated_ -= committed_;
  sent_ = committed_ = 0;
  return true;
}

}  // namespace faultline::transport
