// SPDX-License-Identifier: BSD-3-Clause
// Frames that a direct link keeps for a peer that takes none for now, in their order. All links of a port
// share a budget, so that stopped peers leave buffers to the rest. Owner: the thread that owns the link.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include <rte_mbuf.h>

namespace faultline::glue {

/// Frames that all links of a port may keep together. Changed by the owner of the links, read by any thread.
struct KeptBudget {
  size_t most_frames = 0;
  std::atomic<size_t> kept_frames{0};

  [[nodiscard]] size_t kept() const { return kept_frames.load(std::memory_order_relaxed); }
  void set_kept(size_t frames) { kept_frames.store(frames, std::memory_order_relaxed); }
};

class KeptFrames {
 public:
  static constexpr size_t kMost = 512;  ///< of one link; a power of two

  explicit KeptFrames(KeptBudget& budget) : budget_(budget) {}
  ~KeptFrames() { static_cast<void>(drop_all()); }
  KeptFrames(const KeptFrames&) = delete;
  KeptFrames& operator=(const KeptFrames&) = delete;

  [[nodiscard]] bool empty() const { return head_ == tail_; }

  /// Keeps a prefix of `frames`; returns its length.
  [[nodiscard]] size_t keep(std::span<rte_mbuf* const> frames) {
    const size_t room = std::min(kMost - size(), budget_.most_frames - budget_.kept());
    const size_t count = std::min(frames.size(), room);
    for (size_t i = 0; i < count; ++i) frames_[tail_++ % kMost] = frames[i];
    budget_.set_kept(budget_.kept() + count);
    return count;
  }

  /// Returns the oldest frames, as many as lie next to each other.
  [[nodiscard]] std::span<rte_mbuf* const> oldest() const {
    const size_t first = head_ % kMost;
    return {&frames_[first], std::min(size(), kMost - first)};
  }
  /// Forgets the oldest frames: they belong to another owner now.
  void take(size_t count) {
    head_ += static_cast<uint32_t>(count);
    budget_.set_kept(budget_.kept() - count);
  }
  /// Frees all frames; returns their number.
  [[nodiscard]] size_t drop_all() {
    const size_t dropped = size();
    for (; !empty(); take(1)) rte_pktmbuf_free(frames_[head_ % kMost]);
    return dropped;
  }

 private:
  [[nodiscard]] size_t size() const { return tail_ - head_; }

  KeptBudget& budget_;
  std::array<rte_mbuf*, kMost> frames_;
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
};

}  // namespace faultline::glue
