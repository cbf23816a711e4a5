// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/memif/memif_link.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include <rte_mbuf.h>
#include <rte_memcpy.h>

#include "pmd_glue/eal/frame_bulk.hpp"
#include "pmd_glue/eal/mbuf_view.hpp"

namespace faultline::glue {
namespace {

using memif::Descriptor;
using memif::RingHeader;

constexpr uint16_t kNoInterrupts = 1;
constexpr uint32_t kLineBytes = 64;
/// A shorter copy finds its lines as soon as a prefetch does.
constexpr uint32_t kFetchFromBytes = 512;

/// Returns a private copy of a shared descriptor. Atomic loads keep the compiler from a second read.
Descriptor load(const Descriptor& shared) {
  std::array<uint64_t, 2> words;
  const auto* const from = reinterpret_cast<const uint64_t*>(&shared);
  words[0] = __atomic_load_n(from, __ATOMIC_RELAXED);
  words[1] = __atomic_load_n(from + 1, __ATOMIC_RELAXED);
  return std::bit_cast<Descriptor>(words);
}

void store(Descriptor& shared, const Descriptor& descriptor) {
  const auto words = std::bit_cast<std::array<uint64_t, 2>>(descriptor);
  auto* const to = reinterpret_cast<uint64_t*>(&shared);
  __atomic_store_n(to, words[0], __ATOMIC_RELAXED);
  __atomic_store_n(to + 1, words[1], __ATOMIC_RELAXED);
}

uint16_t load_index(const uint16_t& shared) {
  return __atomic_load_n(&shared, __ATOMIC_ACQUIRE);
}

void store_index(uint16_t& shared, uint16_t index) {
  __atomic_store_n(&shared, index, __ATOMIC_RELEASE);
}

// The lines lie in the other CPU's cache. All are asked for at once: a copy would wait for one after the
// other.
void fetch_to_read(const uint8_t* from, uint32_t bytes) {
  for (uint32_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(from + at);
}

// On x86-64 the builtin prefetches for reading where the compiler's target lacks PREFETCHW; a CPU without
// it does nothing.
void fetch_to_write(const uint8_t* to, uint32_t bytes) {
  for (uint32_t at = 0; at < bytes; at += kLineBytes) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(to[at]));
#else
    __builtin_prefetch(to + at, 1);
#endif
  }
}

}  // namespace

MemifLink::MemifLink(Role role, memif::Geometry geometry, uint32_t buffer_bytes)
    : role_(role), geometry_(std::move(geometry)), buffer_bytes_(buffer_bytes) {
  const bool is_client = role_ == Role::client;
  receive_ = ring_at(is_client ? geometry_.to_client : geometry_.to_server);
  transmit_ = ring_at(is_client ? geometry_.to_server : geometry_.to_client);
  if (!is_client) return;
  const auto end_of = [](const memif::RingPlace& ring) {
    return ring.offset + memif::ring_bytes(ring.log2_size);
  };
  transmit_.buffers_offset = std::max(end_of(geometry_.to_server), end_of(geometry_.to_client));
  receive_.buffers_offset = transmit_.buffers_offset + uint64_t{transmit_.size} * buffer_bytes_;
  if (receive_.buffers_offset + uint64_t{receive_.size} * buffer_bytes_ > geometry_.regions[0].size_bytes())
    close_for_violation("shares a region without room for its buffers");
}

MemifLink::Ring MemifLink::ring_at(const memif::RingPlace& place) const {
  uint8_t* const header = geometry_.regions[place.region].base() + place.offset;
  return {.header = reinterpret_cast<RingHeader*>(header),
          .descriptors = reinterpret_cast<Descriptor*>(header + sizeof(RingHeader)),
          .size = uint32_t{1} << place.log2_size};
}

void MemifLink::begin() {
  __atomic_store_n(&receive_.header->flags, kNoInterrupts, __ATOMIC_RELAXED);
  if (role_ == Role::client && violation() == nullptr) put_buffers(static_cast<uint16_t>(receive_.size));
}

bool MemifLink::has_frames() const {
  const RingHeader& header = *receive_.header;
  return load_index(role_ == Role::client ? header.tail : header.head) != receive_.next;
}

/// Offers `count` buffers of the client's receive ring to the server.
void MemifLink::put_buffers(uint16_t count) {
  for (; count != 0; --count, ++offered_) {
    const uint32_t slot = offered_ & (receive_.size - 1);
    store(receive_.descriptors[slot],
          {.flags = 0,
           .region = 0,
           .length = buffer_bytes_,
           .offset = static_cast<uint32_t>(receive_.buffers_offset + uint64_t{slot} * buffer_bytes_),
           .metadata = 0});
  }
  store_index(receive_.header->head, offered_);
}

/// Returns the buffer of a descriptor. The client computes it from the slot. The server reads it from the
/// descriptor, which a malicious client may have forged, and checks it against the region.
MemifLink::Buffer MemifLink::locate(const Descriptor& descriptor, const Ring& ring, uint16_t slot) const {
  if (role_ == Role::client) {
    uint8_t* const bytes = geometry_.regions[0].base() + ring.buffers_offset + uint64_t{slot} * buffer_bytes_;
    return {descriptor.length <= buffer_bytes_ ? bytes : nullptr, descriptor.length};
  }
  if (descriptor.region >= geometry_.regions.size()) return {nullptr, 0};
  const memif::Region& region = geometry_.regions[descriptor.region];
  if (uint64_t{descriptor.offset} + descriptor.length > region.size_bytes()) return {nullptr, 0};
  return {region.base() + descriptor.offset, descriptor.length};
}

/// Copies one frame from one or more descriptors into one buffer. Returns false if they are malformed.
bool MemifLink::gather(rte_mbuf* frame, uint16_t first, uint16_t waiting, uint16_t& taken,
                       Gathered& gathered) {
  const uint32_t capacity = capacity_of(frame);
  gathered = {.length_bytes = 0, .fits = true};
  for (;;) {
    const auto slot = static_cast<uint16_t>((first + taken) & (receive_.size - 1));
    const Descriptor descriptor = load(receive_.descriptors[slot]);
    const Buffer buffer = locate(descriptor, receive_, slot);
    if (buffer.bytes == nullptr) [[unlikely]] {
      close_for_violation("has a descriptor of bytes that are not in its region");
      return false;
    }
    ++taken;
    gathered.fits = gathered.fits && buffer.length_bytes <= capacity - gathered.length_bytes;
    if (gathered.fits) [[likely]] {
      if (buffer.length_bytes >= kFetchFromBytes) fetch_to_read(buffer.bytes, buffer.length_bytes);
      rte_memcpy(rte_pktmbuf_mtod_offset(frame, uint8_t*, gathered.length_bytes), buffer.bytes,
                 buffer.length_bytes);
      gathered.length_bytes += buffer.length_bytes;
    }
    if ((descriptor.flags & memif::kNext) == 0) [[likely]]
      return true;
    if (taken == waiting) {
      close_for_violation("has a frame whose end is missing");
      return false;
    }
  }
}

size_t MemifLink::receive(rte_mempool* pool, uint16_t port, std::span<rte_mbuf*> frames) {
  if (violation() != nullptr) [[unlikely]]
    return 0;
  RingHeader& header = *receive_.header;
  const bool is_client = role_ == Role::client;
  const auto waiting =
      static_cast<uint16_t>(load_index(is_client ? header.tail : header.head) - receive_.next);
  if (waiting == 0) return 0;
  if (waiting > receive_.size) [[unlikely]] {
    close_for_violation("has more frames in its ring than the ring holds");
    return 0;
  }
  size_t count = std::min<size_t>(waiting, frames.size());
  while (count != 0 && !take_frames(pool, frames.first(count))) count /= 2;

  size_t received = 0;
  uint16_t taken = 0;
  uint16_t returned = 0;
  const uint16_t first = receive_.next;
  uint32_t kept_bytes = 0;
  for (size_t used = 0; used < count && taken != waiting; ++used) {
    rte_mbuf* const frame = frames[used];
    Gathered gathered;
    if (!gather(frame, first, waiting, taken, gathered)) [[unlikely]]
      break;
    kept_bytes += gathered.length_bytes;
    if (kept_bytes >= kPublishBytes) {
      give_back(static_cast<uint16_t>(taken - returned));
      returned = taken;
      kept_bytes = 0;
    }
    if (!gathered.fits) [[unlikely]] {
      oversized_->store(oversized() + 1, std::memory_order_relaxed);
      continue;
    }
    frame->port = port;
    set_length(frame, gathered.length_bytes);
    std::swap(frames[received++], frames[used]);
  }
  // Returns the unused buffers to the pool.
  if (received != count)
    rte_mempool_put_bulk(pool, reinterpret_cast<void**>(frames.data() + received),
                         static_cast<unsigned>(count - received));

  give_back(static_cast<uint16_t>(taken - returned));
  return received;
}

/// Gives the next `count` descriptors of the receive ring back to the other end.
void MemifLink::give_back(uint16_t count) {
  receive_.next = static_cast<uint16_t>(receive_.next + count);
  if (role_ == Role::client)
    put_buffers(count);
  else
    store_index(receive_.header->tail, receive_.next);
}

/// Copies a frame into descriptors and returns their number; 0 if there is no room or a descriptor is
/// malformed.
uint16_t MemifLink::scatter(const rte_mbuf* frame, uint16_t slot, uint16_t room) {
  uint16_t used = 0;
  Buffer buffer{nullptr, 0};
  Descriptor filled{};
  uint32_t filled_bytes = 0;
  Descriptor* shared = nullptr;
  const auto finish = [&](uint16_t flags) {
    filled.flags = flags;
    filled.length = filled_bytes;
    store(*shared, filled);
  };
  for (const rte_mbuf* part = frame; part != nullptr; part = part->next) {
    const auto* from = rte_pktmbuf_mtod(part, const uint8_t*);
    for (uint32_t left = part->data_len; left != 0;) {
      if (shared == nullptr || filled_bytes == buffer.length_bytes) {
        if (used == room) return 0;
        if (shared != nullptr) finish(memif::kNext);
        const auto at = static_cast<uint16_t>((slot + used) & (transmit_.size - 1));
        shared = &transmit_.descriptors[at];
        if (role_ == Role::client)
          filled = {.flags = 0,
                    .region = 0,
                    .length = buffer_bytes_,
                    .offset = static_cast<uint32_t>(transmit_.buffers_offset + uint64_t{at} * buffer_bytes_),
                    .metadata = 0};
        else
          filled = load(*shared);
        buffer = locate(filled, transmit_, at);
        if (buffer.bytes == nullptr || buffer.length_bytes == 0) [[unlikely]] {
          close_for_violation("offers a buffer that is not in its region");
          return 0;
        }
        filled_bytes = 0;
        ++used;
      }
      const uint32_t bytes = std::min(left, buffer.length_bytes - filled_bytes);
      if (bytes >= kFetchFromBytes) fetch_to_write(buffer.bytes + filled_bytes, bytes);
      rte_memcpy(buffer.bytes + filled_bytes, from, bytes);
      filled_bytes += bytes;
      from += bytes;
      left -= bytes;
    }
  }
  if (shared != nullptr) finish(0);
  return used;
}

size_t MemifLink::transmit(std::span<rte_mbuf* const> frames) {
  if (violation() != nullptr || frames.empty()) [[unlikely]]
    return 0;
  RingHeader& header = *transmit_.header;
  const bool is_client = role_ == Role::client;
  const auto ahead = static_cast<uint16_t>(is_client ? transmit_.next - load_index(header.tail)
                                                     : load_index(header.head) - transmit_.next);
  if (ahead > transmit_.size) [[unlikely]] {
    close_for_violation("moves the index of a ring beyond the ring");
    return 0;
  }
  auto room = static_cast<uint16_t>(is_client ? transmit_.size - ahead : ahead);
  size_t sent = 0;
  uint32_t unpublished_bytes = 0;
  FrameReturn done;
  for (rte_mbuf* const frame : frames) {
    if (room == 0) break;
    const uint16_t used = scatter(frame, transmit_.next, room);
    if (used == 0 && frame->pkt_len != 0) break;
    transmit_.next = static_cast<uint16_t>(transmit_.next + used);
    room = static_cast<uint16_t>(room - used);
    unpublished_bytes += frame->pkt_len;
    if (unpublished_bytes >= kPublishBytes) {
      store_index(is_client ? header.head : header.tail, transmit_.next);
      unpublished_bytes = 0;
    }
    done.add(frame);
    ++sent;
  }
  if (sent != 0) store_index(is_client ? header.head : header.tail, transmit_.next);
  return sent;
}

}  // namespace faultline::glue
