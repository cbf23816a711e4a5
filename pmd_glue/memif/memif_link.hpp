// SPDX-License-Identifier: BSD-3-Clause
// Receives and transmits on a memif link that is up, in place of net_memif's bursts. The peer can write to
// all of the shared memory at any time, so its contents are not trusted. This end keeps its own indices,
// reads each descriptor once, and checks that copy before use. A peer that violates the protocol loses its
// link.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "pmd_glue/memif/memif_handshake.hpp"

struct rte_mbuf;
struct rte_mempool;

namespace faultline::glue {

class MemifLink {
 public:
  using Role = memif::Handshake::Role;

  /// The client divides the memory after the rings of the first region into buffers of `buffer_bytes`.
  MemifLink(Role role, memif::Geometry geometry, uint32_t buffer_bytes);

  /// Call before any frame. Disables interrupts for the receive ring; a client also offers its receive
  /// buffers to the server.
  void begin();

  /// Receives contiguous frames from `pool`; returns their number. One thread at a time.
  [[nodiscard]] size_t receive(rte_mempool* pool, uint16_t port, std::span<rte_mbuf*> frames);
  /// Transmits a prefix of `frames`, frees those frames and returns their number. One thread at a time.
  [[nodiscard]] size_t transmit(std::span<rte_mbuf* const> frames);

  /// True if a frame waits to be received. The receiving thread.
  [[nodiscard]] bool has_frames() const;

  /// Returns the peer's protocol violation, or nullptr. A link with a violation carries no more frames.
  [[nodiscard]] const char* violation() const { return violation_.load(std::memory_order_relaxed); }
  /// Received frames that are too long for a buffer of the pool.
  [[nodiscard]] uint64_t oversized() const { return oversized_->load(std::memory_order_relaxed); }
  /// Counts them in `total` from now on, which outlives the link.
  void count_oversized_in(std::atomic<uint64_t>& total) { oversized_ = &total; }

 private:
  /// Both ends copy at the same time: an end tells the other after so many bytes, rather than at the end of
  /// its burst.
  static constexpr uint32_t kPublishBytes = 8192;

  struct Ring {
    memif::RingHeader* header = nullptr;
    memif::Descriptor* descriptors = nullptr;
    uint32_t size = 0;  ///< a power of two
    uint64_t buffers_offset = 0;
    uint16_t next = 0;  ///< the first descriptor that this end has not consumed
  };
  struct Buffer {
    uint8_t* bytes;  ///< nullptr: the descriptor is malformed
    uint32_t length_bytes;
  };
  struct Gathered {
    uint32_t length_bytes;
    bool fits;
  };

  [[nodiscard]] Ring ring_at(const memif::RingPlace& place) const;
  [[nodiscard]] Buffer locate(const memif::Descriptor& descriptor, const Ring& ring, uint16_t slot) const;
  [[nodiscard]] bool gather(rte_mbuf* frame, uint16_t first, uint16_t waiting, uint16_t& taken,
                            Gathered& gathered);
  void give_back(uint16_t count);
  [[nodiscard]] uint16_t scatter(const rte_mbuf* frame, uint16_t slot, uint16_t room);
  void put_buffers(uint16_t count);
  void close_for_violation(const char* violation) { violation_.store(violation, std::memory_order_relaxed); }

  const Role role_;
  const memif::Geometry geometry_;
  const uint32_t buffer_bytes_;
  Ring receive_;
  Ring transmit_;
  uint16_t offered_ = 0;  ///< head of the client's receive ring
  std::atomic<const char*> violation_{nullptr};
  std::atomic<uint64_t> own_oversized_{0};
  std::atomic<uint64_t>* oversized_ = &own_oversized_;
};

}  // namespace faultline::glue
