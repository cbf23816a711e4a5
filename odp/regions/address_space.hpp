// SPDX-License-Identifier: BSD-3-Clause
// Counts in-progress system calls that hold mmap_lock, the kernel's lock on this process's address space,
// perhaps for long. A page fault waits for a writer, and a writer waits for every reader (linux,
// Documentation/mm/process_addrs.rst). MADV_COLLAPSE is a reader that holds the lock while it waits for each
// CPU.
#pragma once

#include <atomic>
#include <cstdint>

namespace faultline::odp {

class AddressSpaceCall {
 public:
  AddressSpaceCall() { begin(); }
  AddressSpaceCall(const AddressSpaceCall&) = delete;
  AddressSpaceCall& operator=(const AddressSpaceCall&) = delete;
  ~AddressSpaceCall() { end(); }
  /// For a call that begins and ends in different functions.
  static void begin() { in_progress_.fetch_add(1, std::memory_order_relaxed); }
  static void end() { in_progress_.fetch_sub(1, std::memory_order_relaxed); }

  /// A hint: a call may begin at any time. Covers the calls that the library makes itself or interposes on.
  [[nodiscard]] static bool any_in_progress() { return in_progress_.load(std::memory_order_relaxed) != 0; }
  /// Resets the count: calls of the parent's other threads never end in the child.
  static void forget_in_child() { in_progress_.store(0, std::memory_order_relaxed); }

 private:
  static inline std::atomic<uint32_t> in_progress_{0};
};

}  // namespace faultline::odp
