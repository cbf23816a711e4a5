// SPDX-License-Identifier: BSD-3-Clause
#include "odp/pin_slots.hpp"

#include <cerrno>
#include <new>

#include <sys/uio.h>

namespace faultline::odp {
namespace {

int update_slot(io_uring& ring, uint32_t slot, const iovec& range) {
  const __u64 tag = 0;
  return io_uring_register_buffers_update_tag(&ring, slot, &range, &tag, 1);
}

}  // namespace

PinSlots::PinSlots() {
  rings_.reserve(kMaxRings);
  free_.reserve(kMaxSlots);
}

PinSlots::~PinSlots() {
  for (io_uring& ring : rings_) {
    // Explicitly: what the exit of a ring leaves to a kernel worker would still count against RLIMIT_MEMLOCK.
    io_uring_unregister_buffers(&ring);
    io_uring_queue_exit(&ring);
  }
}

bool PinSlots::add_ring() {
  if (!can_grow_ || rings_.size() == kMaxRings) return false;
  try {
    // Also for the way back, so that unpin cannot fail.
    rings_.reserve(rings_.size() + 1);
    free_.reserve((rings_.size() + 1) * kSlotsPerRing);
  } catch (const std::bad_alloc&) {
    return false;
  }
  io_uring ring{};
  can_grow_ = io_uring_queue_init(1, &ring, 0) == 0;
  if (!can_grow_) return false;
  if (io_uring_register_buffers_sparse(&ring, kSlotsPerRing) != 0) {
    io_uring_queue_exit(&ring);
    can_grow_ = false;
    return false;
  }
  const auto base = static_cast<uint32_t>(rings_.size()) * kSlotsPerRing;
  rings_.push_back(ring);
  for (uint32_t i = kSlotsPerRing; i-- > 0;) free_.push_back(base + i);
  return true;
}

int PinSlots::pin(uint64_t address, uint64_t length_bytes, uint32_t& slot) {
  if (free_.empty() && !add_ring()) return ENOSPC;
  slot = free_.back();
  const iovec range{reinterpret_cast<void*>(address), length_bytes};
  const int result = update_slot(rings_[slot / kSlotsPerRing], slot % kSlotsPerRing, range);
  if (result != 1) return result < 0 ? -result : EFAULT;
  free_.pop_back();
  return 0;
}

void PinSlots::unpin(uint32_t slot) {
  const iovec none{nullptr, 0};
  // Clearing a filled slot cannot fail.
  (void)update_slot(rings_[slot / kSlotsPerRing], slot % kSlotsPerRing, none);
  free_.push_back(slot);
}

}  // namespace faultline::odp
