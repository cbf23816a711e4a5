// SPDX-License-Identifier: BSD-3-Clause
// Long-term pins without a device: slots of io_uring's registered-buffer tables. A filled slot pins its
// pages; nothing is ever submitted to the rings. mlock is unsuitable: it would make the program's own
// madvise fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <liburing.h>
#include <sys/uio.h>

#include "stack/base/lazy_array.hpp"

namespace faultline::odp {

class PinSlots {
 public:
  /// Kernel limit of one table (IORING_MAX_REG_BUFFERS).
  static constexpr uint32_t kSlotsPerRing = 1U << 14;
  static constexpr uint32_t kMaxRings = 16;
  static constexpr uint32_t kMaxSlots = kSlotsPerRing * kMaxRings;
  /// Kernel limit of one buffer.
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 30;

  PinSlots();
  PinSlots(const PinSlots&) = delete;
  PinSlots& operator=(const PinSlots&) = delete;
  ~PinSlots();

  /// Pins [address, address + length_bytes). Returns 0 or an errno: ENOMEM over RLIMIT_MEMLOCK; EFAULT for a
  /// kind of memory that cannot be pinned; ENOSPC no free slot; EPERM, ENOSYS, EMFILE, ... if io_uring is
  /// unavailable to this process.
  [[nodiscard]] int pin(uint64_t address, uint64_t length_bytes, uint32_t& slot);
  /// Returns 0, or an errno if the kernel refuses the call (a sandbox that was entered after the start).
  /// Then the pages stay pinned until the process ends, and the slot is not reused.
  [[nodiscard]] int unpin(uint32_t slot);

  /// Tests whether this process may pin a page now, by trying. Returns 0 or an errno as pin() does.
  [[nodiscard]] static int try_once();

 private:
  /// Returns 0 or an errno.
  [[nodiscard]] int add_ring();

  std::vector<io_uring> rings_;   ///< reserved at construction: never reallocates
  std::vector<uint32_t> free_;    ///< likewise
  LazyArray<iovec> empty_table_;  ///< before Linux 5.19
  /// Error of the last failed try to open a ring, the failures since the last success, and the calls of
  /// pin() that skip a further try. Counted in calls, since pins are made at faults: no clock has to be
  /// read.
  int ring_error_ = 0;
  uint32_t ring_failures_ = 0;
  uint32_t calls_to_skip_ = 0;
};

}  // namespace faultline::odp
