// SPDX-License-Identifier: BSD-3-Clause
// Who is in a call that holds the kernel's lock on this process's address space, perhaps for long: a page
// fault waits behind a writer, and a writer behind every reader (MADV_COLLAPSE is one, for as long as it
// waits for each CPU; linux, Documentation/mm/process_addrs.rst).
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

  /// As a hint: one may begin at once. Of those that the library makes itself or stands before.
  [[nodiscard]] static bool any_in_progress() { return in_progress_.load(std::memory_order_relaxed) != 0; }
  /// Those of a parent's other threads will never end in the child.
  static void forget_in_child() { in_progress_.store(0, std::memory_order_relaxed); }

 private:
  static inline std::atomic<uint32_t> in_progress_{0};
};

}  // namespace faultline::odp
