// SPDX-License-Identifier: BSD-3-Clause
// A frame in the simulated fabric. It has the length of the real frame but only its first bytes: no payload
// is carried, since a thousand hosts at line rate would move gigabytes that nobody reads.
#pragma once

#include <array>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "apps/sim/fabric/event_queue.hpp"

namespace faultline::fabric {

/// Bytes of a frame that are kept: all headers of any packet of RC, also the longest, which is a selective
/// acknowledgement.
inline constexpr uint32_t kKeptBytes = 128;

/// Preamble, frame check sequence and gap (IEEE 802.3), which a frame needs on a link beside its bytes.
inline constexpr uint32_t kLinkOverheadBytes = 8 + 4 + 12;

/// The first cache line has all that a switch reads and changes, the IP header's ECN bits and checksum
/// included.
struct alignas(64) Frame {
  Frame* next = nullptr;  ///< in a queue, or under way
  TimePs arrives_ps = 0;  ///< while under way
  uint32_t length_bytes = 0;
  uint32_t destination = 0;  ///< host
  uint32_t flow_hash = 0;    ///< of addresses and ports, for ECMP
  uint32_t input = 0;        ///< channel by which it reached the switch whose queue has it
  std::array<uint8_t, kKeptBytes> bytes;

  [[nodiscard]] uint32_t kept_bytes() const { return length_bytes < kKeptBytes ? length_bytes : kKeptBytes; }
};

/// First-in first-out list of frames.
class FrameList {
 public:
  [[nodiscard]] bool empty() const { return head_ == nullptr; }
  [[nodiscard]] Frame* front() const { return head_; }
  void push(Frame& frame) {
    frame.next = nullptr;
    if (head_ == nullptr)
      head_ = &frame;
    else
      tail_->next = &frame;
    tail_ = &frame;
  }
  Frame& pop() {
    Frame& frame = *head_;
    head_ = frame.next;
    return frame;
  }

 private:
  Frame* head_ = nullptr;
  Frame* tail_ = nullptr;
};

class FramePool {
 public:
  explicit FramePool(std::pmr::memory_resource* memory) : slabs_(memory) {}

  [[nodiscard]] Frame& take() {
    if (free_.empty()) grow();
    ++used_;
    return free_.pop();
  }
  void give_back(Frame& frame) {
    --used_;
    // Last in, first out: the next frame is then in the cache.
    frame.next = nullptr;
    free_.push_front(frame);
  }
  [[nodiscard]] uint64_t used() const { return used_; }

 private:
  static constexpr size_t kSlab = 4096;

  struct FreeList {
    Frame* head = nullptr;
    [[nodiscard]] bool empty() const { return head == nullptr; }
    Frame& pop() {
      Frame& frame = *head;
      head = frame.next;
      return frame;
    }
    void push_front(Frame& frame) {
      frame.next = head;
      head = &frame;
    }
  };

  void grow() {
    std::pmr::vector<Frame>& slab = slabs_.emplace_back(kSlab);
    for (size_t i = kSlab; i-- != 0;) free_.push_front(slab[i]);
  }

  std::pmr::vector<std::pmr::vector<Frame>> slabs_;
  FreeList free_;
  uint64_t used_ = 0;
};

}  // namespace faultline::fabric
