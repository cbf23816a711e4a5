// SPDX-License-Identifier: BSD-3-Clause
// Frames from their pool and back, many in one go. rte_pktmbuf_alloc_bulk and rte_pktmbuf_free_bulk do the
// same in two to five times the instructions: they are made for chains of buffers of any kind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <rte_mbuf.h>

namespace faultline::glue {

/// Empty frames to be sent: all that were asked for, or none. What lies in a pool is one buffer that nobody
/// else holds, and a length comes with what is written: so that these fields are all that a sender may find
/// set.
[[nodiscard]] inline bool take_frames(rte_mempool* pool, std::span<rte_mbuf*> frames) {
  auto* const objects = reinterpret_cast<void**>(frames.data());
  if (rte_mempool_get_bulk(pool, objects, static_cast<unsigned>(frames.size())) != 0) return false;
  for (rte_mbuf* const frame : frames) {
    frame->ol_flags = 0;
    frame->data_off = RTE_PKTMBUF_HEADROOM;
  }
  return true;
}

/// What such a frame holds. rte_pktmbuf_tailroom would take off the length that its last use has left.
[[nodiscard]] inline uint32_t capacity_of(const rte_mbuf* empty) {
  return uint32_t{empty->buf_len} - RTE_PKTMBUF_HEADROOM;
}

class FrameReturn {
 public:
  FrameReturn() = default;
  FrameReturn(const FrameReturn&) = delete;
  FrameReturn& operator=(const FrameReturn&) = delete;
  ~FrameReturn() { give_back(); }

  [[gnu::always_inline]] void add(rte_mbuf* frame) {
    if (frame->next != nullptr) [[unlikely]]
      return rte_pktmbuf_free(frame);
    rte_mbuf* const ours = rte_pktmbuf_prefree_seg(frame);
    if (ours == nullptr) return;  // somebody holds it still
    if (count_ == frames_.size() || ours->pool != pool_) {
      give_back();
      pool_ = ours->pool;
    }
    frames_[count_++] = ours;
  }

 private:
  [[gnu::noinline]] void give_back() {
    if (count_ != 0) rte_mempool_put_bulk(pool_, frames_.data(), count_);
    count_ = 0;
  }

  std::array<void*, 64> frames_;
  unsigned count_ = 0;
  rte_mempool* pool_ = nullptr;
};

}  // namespace faultline::glue
