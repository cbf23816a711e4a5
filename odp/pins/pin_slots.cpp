// SPDX-License-Identifier: BSD-3-Clause
#include "odp/pins/pin_slots.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <sys/uio.h>

#include "odp/regions/page_map.hpp"
#include "stack/base/lazy_array.hpp"
#include "stack/base/process/service_thread.hpp"

namespace faultline::odp {
namespace {

int update_slot(io_uring& ring, uint32_t slot, const iovec& range) {
  const __u64 tag = 0;
  return io_uring_register_buffers_update_tag(&ring, slot, &range, &tag, 1);
}

/// Opens a ring with a table of empty slots. Returns 0 or an errno. `none` is a buffer for older kernels. The
/// caller keeps it, since munmap on the pager's thread would wait for the pager.
int open_table(io_uring& ring, uint32_t slots, LazyArray<iovec>& none) {
  if (const int result = io_uring_queue_init(1, &ring, 0); result < 0) return -result;
  int result = io_uring_register_buffers_sparse(&ring, slots);
  if (result == -EINVAL) {
    // Before Linux 5.19 a table is empty if all its entries are.
    const bool has_none = none.size() == slots || none.allocate(slots);
    result = has_none ? io_uring_register_buffers(&ring, &none[0], slots) : -ENOMEM;
  }
  if (result == 0) return 0;
  io_uring_queue_exit(&ring);
  return -result;
}

/// The end of a ring interrupts a system call of the thread that made the ring: its epoll_wait(2) returns
/// EINTR without a signal. So this runs on a thread that ends before its ring does.
int pin_a_page() {
  LazyArray<uint8_t> page;
  if (!page.allocate(kPageBytes)) return ENOMEM;
  page[0] = 1;
  io_uring ring{};
  LazyArray<iovec> none;
  if (const int error = open_table(ring, 1, none); error != 0) return error;
  const int result = update_slot(ring, 0, {&page[0], kPageBytes});
  io_uring_unregister_buffers(&ring);
  io_uring_queue_exit(&ring);
  if (result == 1) return 0;
  return result < 0 ? -result : EFAULT;
}

/// Most calls of pin() that skip the next try to open a ring.
constexpr uint32_t kMostCallsToSkip = 1024;

/// True for errors that a later try may not meet. io_uring_setup(2): EPERM and ENOSYS are permanent.
bool is_transient(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN;
}

}  // namespace

PinSlots::PinSlots() {
  rings_.reserve(kMaxRings);
  free_.reserve(kMaxSlots);
}

PinSlots::~PinSlots() {
  for (io_uring& ring : rings_) {
    // Explicit: buffers that a ring's exit leaves to a kernel worker would still count against
    // RLIMIT_MEMLOCK.
    io_uring_unregister_buffers(&ring);
    io_uring_queue_exit(&ring);
  }
}

int PinSlots::add_ring() {
  if (rings_.size() == kMaxRings) return ENOSPC;
  if (ring_error_ != 0 && !is_transient(ring_error_)) return ring_error_;
  if (calls_to_skip_ != 0) {
    --calls_to_skip_;
    return ring_error_;
  }
  io_uring ring{};
  ring_error_ = open_table(ring, kSlotsPerRing, empty_table_);
  if (ring_error_ != 0) {
    calls_to_skip_ = std::min(1U << std::min(ring_failures_, 31U), kMostCallsToSkip);
    ++ring_failures_;
    return ring_error_;
  }
  ring_failures_ = 0;
  const auto base = static_cast<uint32_t>(rings_.size()) * kSlotsPerRing;
  rings_.push_back(ring);
  for (uint32_t i = kSlotsPerRing; i-- > 0;) free_.push_back(base + i);
  return 0;
}

int PinSlots::pin(uint64_t address, uint64_t length_bytes, uint32_t& slot) {
  if (free_.empty()) {
    if (const int error = add_ring(); error != 0) return error;
  }
  slot = free_.back();
  const iovec range{reinterpret_cast<void*>(address), length_bytes};
  const int result = update_slot(rings_[slot / kSlotsPerRing], slot % kSlotsPerRing, range);
  if (result != 1) return result < 0 ? -result : EFAULT;
  free_.pop_back();
  return 0;
}

int PinSlots::unpin(uint32_t slot) {
  const iovec none{nullptr, 0};
  const int result = update_slot(rings_[slot / kSlotsPerRing], slot % kSlotsPerRing, none);
  if (result != 1) return result < 0 ? -result : EFAULT;
  free_.push_back(slot);
  return 0;
}

int PinSlots::try_once() {
  int error = 0;
  try {
    start_service_thread([&error] { error = pin_a_page(); }).join();
  } catch (const std::system_error&) {
    error = pin_a_page();  // no thread can be had
  }
  return error;
}

}  // namespace faultline::odp
