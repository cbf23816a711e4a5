// SPDX-License-Identifier: BSD-3-Clause
// One end of the memory that two processes of a host share: a ring of frames in each direction, and for each
// end a flag by which it asks for doorbells. The rings have memif's format, and MemifLink checks what the
// other end writes: the other end may change the memory at any time, and breaks its own ring only. Owner: one
// thread at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "pmd_glue/memif/memif_link.hpp"
#include "pmd_glue/wires/inbox.hpp"

namespace faultline::glue {

class SharedRing {
 public:
  /// Descriptors of a ring, and the bytes of their buffers. A frame takes as many as it needs.
  struct Shape {
    unsigned log2_size;
    uint32_t buffer_bytes;
    /// Both rings with both ends' flags.
    [[nodiscard]] constexpr uint64_t bytes() const {
      return kRingsAt + 2 * (memif::ring_bytes(log2_size) + (uint64_t{buffer_bytes} << log2_size));
    }
  };
  /// Of a direct link, in kLinkBytes: a frame of 4 KiB takes three descriptors, a short one a single one.
  /// Measured: fewer and larger buffers stay in the CPUs' caches, and 64 of them hold a burst of both ends.
  static constexpr Shape kLink{.log2_size = 6, .buffer_bytes = 1920};
  /// Of the ring to the switch, in kSeatBytes. It holds what a process sends before it is killed, also while
  /// the switch is stopped.
  static constexpr Shape kSeat{.log2_size = 9, .buffer_bytes = 1024};

  /// What an end says of itself.
  enum class State : uint32_t {
    absent,
    attached,  ///< receives
    closing    ///< receives what has been sent, and sends no more
  };

  /// Maps the memory. `side` is 0 at one end and 1 at the other; side 0 computes all places itself
  /// and reads none from the memory. `inbox` is the other end's, in which this end rings at `own_seat`.
  /// Returns nullptr if the memory cannot be mapped.
  [[nodiscard]] static std::unique_ptr<SharedRing> begin(int memory, const Shape& shape, uint32_t side,
                                                         std::unique_ptr<Inbox> inbox, uint32_t own_seat);
  /// The other end sends nothing more.
  ~SharedRing() { set_closing(); }
  SharedRing(const SharedRing&) = delete;
  SharedRing& operator=(const SharedRing&) = delete;

  // --- transmit ---

  /// True if the other end has attached and neither end is closing.
  [[nodiscard]] bool takes_frames() const {
    // Side 1 needs the buffers that side 0 offers before it attaches.
    return other_state() == State::attached && own_state() == State::attached && ring_.violation() == nullptr;
  }
  /// Transmits a prefix of `frames`, rings if the other end asks for it, and returns the prefix's length.
  /// `is_ack` tells whether a frame is a pure acknowledgement.
  template <typename IsAck>
  [[nodiscard]] size_t transmit(std::span<rte_mbuf* const> frames, IsAck is_ack) {
    const bool only_acks = other().armed.load(std::memory_order_relaxed) != 0 &&
                           inbox_->wakes_for() == WakeFor::requests && std::ranges::all_of(frames, is_ack);
    const size_t sent = ring_.transmit(frames);
    if (sent == 0) return 0;
    moved_ += sent;
    // The ring's index is stored before the flag is read; the other end stores the flag before it reads the
    // index.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (other().armed.load(std::memory_order_relaxed) != 0) inbox_->ring(own_seat_, only_acks);
    return sent;
  }
  [[nodiscard]] size_t transmit(std::span<rte_mbuf* const> frames) {
    return transmit(frames, [](const rte_mbuf*) { return false; });
  }

  // --- receive ---

  [[nodiscard]] size_t receive(rte_mempool* pool, uint16_t port, std::span<rte_mbuf*> frames) {
    const size_t received = ring_.receive(pool, port, frames);
    moved_ += received;
    return received;
  }
  [[nodiscard]] bool has_frames() const { return ring_.violation() == nullptr && ring_.has_frames(); }
  /// While the ring is armed, the other end rings after it has sent frames. The caller calls has_frames()
  /// once more after arm().
  void arm() { own().armed.store(1); }
  void disarm() { own().armed.store(0, std::memory_order_relaxed); }

  // --- state ---

  /// The program has closed the descriptors of this process.
  void lose_descriptors() { inbox_->lose_descriptors(); }

  [[nodiscard]] State own_state() const { return State{own().state.load(std::memory_order_relaxed)}; }
  [[nodiscard]] State other_state() const { return State{other().state.load(std::memory_order_acquire)}; }
  void set_closing() { own().state.store(static_cast<uint32_t>(State::closing), std::memory_order_release); }
  /// What the other end did wrong; nullptr: nothing. No frame moves after it.
  [[nodiscard]] const char* violation() const { return ring_.violation(); }
  /// Frames in both directions.
  [[nodiscard]] uint64_t moved() const { return moved_; }

 private:
  static constexpr uint32_t kRingsAt = 128;  ///< after both ends' flags

  /// At the start of the memory, one for each side.
  struct alignas(64) End {
    std::atomic<uint32_t> state;
    std::atomic<uint32_t> armed;
  };

  SharedRing(memif::Region region, const Shape& shape, uint32_t side, std::unique_ptr<Inbox> inbox,
             uint32_t own_seat);
  [[nodiscard]] static memif::Geometry geometry_of(memif::Region region, const Shape& shape);
  [[nodiscard]] End& own() const { return ends_[side_]; }
  [[nodiscard]] End& other() const { return ends_[side_ ^ 1U]; }

  End* const ends_;
  const uint32_t side_;
  const uint32_t own_seat_;
  const std::unique_ptr<Inbox> inbox_;
  MemifLink ring_;
  uint64_t moved_ = 0;
};

}  // namespace faultline::glue
