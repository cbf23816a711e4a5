// SPDX-License-Identifier: BSD-3-Clause
// Rings that carry work requests from application threads to the engine. Posting copies a WQE once. The
// engine reads only that copy, which no application thread can reach (CVE-2026-74378: a count checked in
// shared memory, then read again).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>

#include "stack/transport/shared/types.hpp"

namespace faultline::transport {

/// Fixed part of a send WQE. `sge_count` elements, or `inline_bytes` of data, follow it in its slot. If the
/// opcode has no operands, they overlay the operand fields, so that a WQE with one element is one cache line.
/// A slot of a UD QP ends in an AddressVector (WorkRing::av_of); slots of other QPs have none.
struct SendWqe {
  uint64_t wr_id = 0;
  uint64_t remote_va = 0;  ///< BIND_MW: start of the window
  uint32_t rkey = 0;       ///< BIND_MW: the window's current key
  /// Host order. SEND with invalidate and LOCAL_INV: the key to invalidate; BIND_MW: the window's new key.
  uint32_t immediate_or_rkey = 0;
  uint32_t length_bytes = 0;  ///< of the message; FLUSH: of the range
  SendOpcode opcode = SendOpcode::send;
  uint8_t flags = 0;  ///< SendFlag
  uint8_t sge_count = 0;
  uint8_t flush_placement = 0;  ///< FLUSH: as in wire::Feth
  uint16_t inline_bytes = 0;    ///< ATOMIC WRITE: 8, or its data is in one element of 8
  uint8_t flush_selectivity = 0;
  uint8_t window_type = 0;  ///< BIND_MW: odp::WindowType
  union {
    uint32_t ud_qpn = 0;
    uint32_t srq_number;  ///< XRC: SRQ that receives the message
  };
  union {
    uint32_t ud_qkey = 0;
    uint32_t bind_lkey;  ///< of the region below the window; 0 with no length: unbind
  };
  uint32_t bind_access = 0;  ///< odp::AccessFlag
  // Operands, of opcodes that have_operands() alone.
  uint64_t swap_or_add = 0;
  union {
    uint64_t compare = 0;
    uint64_t bind_length_bytes;
  };
};
static_assert(sizeof(SendWqe) == 64, "a send WQE's fixed part is one cache line");

[[nodiscard]] constexpr bool have_operands(SendOpcode opcode) {
  return opcode == SendOpcode::atomic_cmp_and_swp || opcode == SendOpcode::atomic_fetch_and_add ||
         opcode == SendOpcode::bind_mw;
}

/// Maximum number of elements of a receive in a shared queue: a QP that takes one keeps a copy.
inline constexpr uint32_t kMaxSharedSges = 16;

/// Key of the one element of a receive that a scenario makes fail (stack/trouble): that of no region. The
/// element's address is the CompletionStatus.
inline constexpr uint32_t kMadeToFailKey = 0xffffffff;

struct ReceiveWqe {
  uint64_t wr_id = 0;
  uint32_t sge_count = 0;
  uint32_t length_bytes = 0;
};

/// Ring of slots, each a Header followed by `max_sge` elements or `max_inline_bytes`, and optionally an
/// address vector. Single producer (the per-QP lock of the verbs layer serialises application threads),
/// single consumer (the owning engine). Indices increase without wrapping at the capacity; a slot is free
/// once retired.
template <typename Header>
class WorkRing {
 public:
  WorkRing(uint32_t entries, uint32_t max_sge, uint32_t max_inline_bytes, bool with_address_vector = false,
           std::pmr::memory_resource* memory = std::pmr::new_delete_resource());

  /// Memory that such a ring needs, in one piece of that alignment.
  [[nodiscard]] static size_t bytes_for(uint32_t entries, uint32_t max_sge, uint32_t max_inline_bytes,
                                        bool with_address_vector = false);
  static constexpr size_t kAlignmentBytes = 64;

  [[nodiscard]] uint32_t capacity() const { return entries_; }
  [[nodiscard]] uint32_t max_sge() const { return max_sge_; }
  [[nodiscard]] uint32_t max_inline_bytes() const { return max_inline_bytes_; }

  // Producer. `prepare` returns the next free slot, or nullptr if the ring is full. Fill the slot, then call
  // `advance` and `publish`.
  [[nodiscard]] Header* prepare() {
    const uint32_t tail = producer_tail_;
    if (tail - cached_head_ >= entries_) {
      cached_head_ = head_.load(std::memory_order_acquire);
      if (tail - cached_head_ >= entries_) return nullptr;
    }
    return header_at(tail);
  }
  /// Prefetches the lines of the next slot. Called before taking the producers' lock. Another thread may be
  /// preparing a slot, so this reads the published tail, never `producer_tail_`.
  [[gnu::always_inline]] void prefetch_slot() {
    prefetch_at(tail_.load(std::memory_order_relaxed));
    __builtin_prefetch(&head_);
  }
  /// Prefetches the lines of the ring's indices.
  [[gnu::always_inline]] void prefetch_ends() const {
    __builtin_prefetch(this);
    __builtin_prefetch(&head_);
  }
  /// Prefetches the slot after the prepared one; producer only.
  [[gnu::always_inline]] void prefetch_next_slot() { prefetch_at(producer_tail_ + 1); }
  void advance() { ++producer_tail_; }  ///< the prepared slot is complete
  /// One past the last advanced slot; producer only.
  [[nodiscard]] uint32_t advanced() const { return producer_tail_; }
  void publish() { tail_.store(producer_tail_, std::memory_order_release); }
  /// Discards the slots prepared since the last publish.
  void discard() { producer_tail_ = tail_.load(std::memory_order_relaxed); }

  // Consumer.
  /// Prefetches the slot that will be posted after `ahead` others.
  [[gnu::always_inline]] void prefetch_slot_to_post(uint32_t ahead) {
    prefetch_at(tail_.load(std::memory_order_relaxed) + ahead);
  }
  [[nodiscard]] uint32_t tail() const { return tail_.load(std::memory_order_acquire); }
  [[nodiscard]] uint32_t head() const { return head_.load(std::memory_order_relaxed); }
  void retire_to(uint32_t index) { head_.store(index, std::memory_order_release); }

  [[nodiscard]] Header* header_at(uint32_t index) {
    return reinterpret_cast<Header*>(slots_.get() + size_t{slot_of(index)} * slot_bytes_);
  }
  [[nodiscard]] const Header* header_at(uint32_t index) const {
    return reinterpret_cast<const Header*>(slots_.get() + size_t{slot_of(index)} * slot_bytes_);
  }
  /// Call after setting the opcode, which determines the offset.
  [[nodiscard]] Sge* sges_of(Header* header) {
    return reinterpret_cast<Sge*>(reinterpret_cast<uint8_t*>(header) + bytes_before_data(*header));
  }
  /// Only in a ring made with_address_vector (UD).
  [[nodiscard]] AddressVector& av_of(Header* header) {
    return *reinterpret_cast<AddressVector*>(reinterpret_cast<uint8_t*>(header) + av_offset_);
  }
  [[nodiscard]] uint8_t* inline_of(Header* header) {
    return reinterpret_cast<uint8_t*>(header) + bytes_before_data(*header);
  }

  /// Consumer, with the producer locked out (reset): empties the ring.
  void clear() {
    producer_tail_ = 0;
    cached_head_ = 0;
    tail_.store(0, std::memory_order_release);
    head_.store(0, std::memory_order_release);
  }

 private:
  [[gnu::always_inline]] void prefetch_at(uint32_t index) { __builtin_prefetch(header_at(index), 1); }

  [[nodiscard]] static size_t bytes_before_data(const Header& header) {
    if constexpr (requires { header.swap_or_add; })
      if (!have_operands(header.opcode)) return offsetof(Header, swap_or_add);
    return kHeaderBytes;
  }

  static constexpr size_t kHeaderBytes = (sizeof(Header) + 15) / 16 * 16;
  struct Release {
    std::pmr::memory_resource* memory;
    size_t bytes;
    void operator()(uint8_t* slots) const;
  };
  [[nodiscard]] uint32_t slot_of(uint32_t index) const { return index & mask_; }

  // One cache line, together with the constants: a seldom-used ring costs two misses, not three.
  alignas(64) const uint32_t entries_;
  const uint32_t mask_;
  const uint32_t max_sge_;
  const uint32_t max_inline_bytes_;
  const uint32_t av_offset_;
  const uint32_t slot_bytes_;
  const std::unique_ptr<uint8_t, Release> slots_;
  std::atomic<uint32_t> tail_{0};
  uint32_t producer_tail_ = 0;  // used by the producer only
  uint32_t cached_head_ = 0;    // used by the producer only
  alignas(64) std::atomic<uint32_t> head_{0};
};

using SendRing = WorkRing<SendWqe>;
using ReceiveRing = WorkRing<ReceiveWqe>;

}  // namespace faultline::transport
