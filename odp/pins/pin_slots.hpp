// SPDX-License-Identifier: BSD-3-Clause
// Long-term pins without a device: slots of io_uring's registered-buffer tables. A filled slot holds its
// pages in place; nothing is ever submitted to the rings. Not mlock: that would make the program's own
// madvise fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <liburing.h>

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

  /// Pins [address, address + length_bytes). 0 or an errno: ENOMEM over RLIMIT_MEMLOCK, EFAULT a kind of
  /// memory that cannot be pinned, ENOSPC no slot left, EPERM, ENOSYS, EMFILE, ... no io_uring for this
  /// process.
  [[nodiscard]] int pin(uint64_t address, uint64_t length_bytes, uint32_t& slot);
  /// 0, or an errno where the kernel refuses the call (a sandbox that was entered after the start). Then the
  /// pages stay pinned until the process ends, and the slot is not given out again.
  [[nodiscard]] int unpin(uint32_t slot);

  /// Whether this process may pin a page now, by trying. 0 or an errno as of pin().
  [[nodiscard]] static int try_once();

 private:
  /// 0 or an errno.
  [[nodiscard]] int add_ring();
  [[nodiscard]] int open_ring(io_uring& ring) const;

  std::vector<io_uring> rings_;  ///< reserved at construction: never reallocates
  std::vector<uint32_t> free_;   ///< likewise
  /// Why the last try to open a ring failed, the failures since the last success, and the calls of pin() that
  /// do not try again. Counted in calls, since pins come with faults: no clock has to be read.
  int ring_error_ = 0;
  uint32_t ring_failures_ = 0;
  uint32_t calls_to_skip_ = 0;
};

}  // namespace faultline::odp
