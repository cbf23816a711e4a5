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
  /// memory that cannot be pinned, ENOSPC no slot left.
  [[nodiscard]] int pin(uint64_t address, uint64_t length_bytes, uint32_t& slot);
  void unpin(uint32_t slot);

 private:
  [[nodiscard]] bool add_ring();

  std::vector<io_uring> rings_;  ///< reserved at construction: never reallocates
  std::vector<uint32_t> free_;   ///< likewise
  bool can_grow_ = true;
};

}  // namespace faultline::odp
