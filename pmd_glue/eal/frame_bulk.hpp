// SPDX-License-Identifier: BSD-3-Clause
// Bulk allocation and release of frames. rte_pktmbuf_alloc_bulk and rte_pktmbuf_free_bulk take two to five
// times the instructions, because they support chained buffers of any kind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <rte_mbuf.h>

namespace faultline::glue {

/// Allocates empty frames for transmission: all of `frames`, or none. A frame in a pool is one buffer without
/// other references, and the writer sets its length. So only ol_flags and data_off need to be reset.
[[nodiscard]] inline bool take_frames(rte_mempool* pool, std::span<rte_mbuf*> frames) {
  auto* const objects = reinterpret_cast<void**>(frames.data());
  if (rte_mempool_get_bulk(pool, objects, static_cast<unsigned>(frames.size())) != 0) return false;
  for (rte_mbuf* const frame : frames) {
    frame->ol_flags = 0;
    frame->data_off = RTE_PKTMBUF_HEADROOM;
  }
  return true;
}

/// Returns the capacity of an empty frame. rte_pktmbuf_tailroom would subtract the stale length of its last
/// use.
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
    if (ours == nullptr) return;  // another reference remains
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
