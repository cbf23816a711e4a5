// SPDX-License-Identifier: BSD-3-Clause
// The memif protocol, version 2.0, between two processes of one host. It has messages of 128 bytes on a
// SOCK_SEQPACKET socket, and rings of descriptors in memory that the client shares.
#pragma once

#include <cstddef>
#include <cstdint>

namespace faultline::glue::memif {

constexpr uint16_t kVersion = 0x200;
constexpr size_t kMessageBytes = 128;

enum class MessageType : uint16_t {
  ack = 1,
  hello,
  init,
  add_region,
  add_ring,
  connect,
  connected,
  disconnect,
};

// Message bodies; each follows the message type.
struct [[gnu::packed]] Hello {
  uint8_t name[32];
  uint16_t min_version, max_version;
  uint16_t max_region;
  uint16_t max_s2c_ring, max_c2s_ring;
  uint8_t max_log2_ring_size;
};

struct [[gnu::packed]] Init {
  uint16_t version;
  uint32_t id;
  uint8_t mode;  ///< 0: Ethernet frames
};

struct [[gnu::packed]] AddRegion {
  uint16_t index;
  uint64_t size_bytes;
};

/// Set: ring towards the server. Clear: ring towards the client.
constexpr uint16_t kRingToServer = 1;

struct [[gnu::packed]] AddRing {
  uint16_t flags;
  uint16_t index;
  uint16_t region;
  uint32_t offset;
  uint8_t log2_size;
};

/// The frame continues in the next descriptor's buffer.
constexpr uint16_t kNext = 1;

struct Descriptor {
  uint16_t flags;
  uint16_t region;
  uint32_t length;
  uint32_t offset;
  uint32_t metadata;
};
static_assert(sizeof(Descriptor) == 16);

/// Precedes the descriptors. In both directions the client advances the head and the server the tail.
struct RingHeader {
  uint32_t cookie;
  uint16_t flags;
  uint16_t head;
  uint8_t unused_0[56];
  uint16_t tail;
  uint8_t unused_1[62];
};
static_assert(sizeof(RingHeader) == 128 && offsetof(RingHeader, tail) == 64);

constexpr unsigned kMaxLog2RingSize = 14;

[[nodiscard]] constexpr uint64_t ring_bytes(unsigned log2_size) {
  return sizeof(RingHeader) + (sizeof(Descriptor) << log2_size);
}

}  // namespace faultline::glue::memif
