// SPDX-License-Identifier: BSD-3-Clause
// Frames on their way back to their pools, a pool's in one go. rte_pktmbuf_free_bulk does the same in three times
// the instructions: it is a library's, and made for chains of buffers of any kind.
#pragma once

#include <array>
#include <cstddef>

#include <rte_mbuf.h>

namespace faultline::glue {

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
