// SPDX-License-Identifier: BSD-3-Clause
// Receives and transmits on a memif link that is up, in place of net_memif's bursts. The peer can write to
// all of the shared memory at any time, so nothing there is believed: this end's indices are kept here, a
// descriptor is read once, and its copy is checked before it is used. A peer that breaks the protocol breaks
// its own link.
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

  /// The client divides what is behind the rings of the first region into buffers of `buffer_bytes`.
  MemifLink(Role role, memif::Geometry geometry, uint32_t buffer_bytes);

  /// Before any frame: the buffers that the server may fill, and no interrupts for what this end receives.
  void begin();

  /// Frames received, contiguous, of `pool`. One thread at a time.
  [[nodiscard]] size_t receive(rte_mempool* pool, uint16_t port, std::span<rte_mbuf*> frames);
  /// Frames taken, from the first on; they are freed. One thread at a time.
  [[nodiscard]] size_t transmit(std::span<rte_mbuf* const> frames);

  /// What the peer did against the protocol, or nullptr. Such a link carries nothing any more.
  [[nodiscard]] const char* violation() const { return violation_.load(std::memory_order_relaxed); }
  /// Frames that no buffer of the pool holds.
  [[nodiscard]] uint64_t oversized() const { return oversized_.load(std::memory_order_relaxed); }

 private:
  struct Ring {
    memif::RingHeader* header = nullptr;
    memif::Descriptor* descriptors = nullptr;
    uint32_t size = 0;  ///< a power of two
    uint64_t buffers_offset = 0;
    uint16_t next = 0;  ///< the first descriptor that this end has not passed
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
  [[nodiscard]] bool gather(rte_mbuf* frame, uint16_t waiting, uint16_t& taken, Gathered& gathered);
  [[nodiscard]] uint16_t scatter(const rte_mbuf* frame, uint16_t slot, uint16_t room);
  void put_buffers(uint16_t count);
  void break_off(const char* violation) { violation_.store(violation, std::memory_order_relaxed); }

  const Role role_;
  const memif::Geometry geometry_;
  const uint32_t buffer_bytes_;
  Ring receive_;
  Ring transmit_;
  uint16_t offered_ = 0;  ///< head of the client's receive ring
  std::atomic<const char*> violation_{nullptr};
  std::atomic<uint64_t> oversized_{0};
};

}  // namespace faultline::glue
