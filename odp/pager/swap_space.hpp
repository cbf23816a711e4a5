// SPDX-License-Identifier: BSD-3-Clause
// Detects whether swapped-out pages are still in memory, compressed (zram). They then return in a few
// microseconds of computing, without waiting for a device.
#pragma once

#include <cstdint>
#include <string>

namespace faultline::odp {

class SwapSpace {
 public:
  explicit SwapSpace(std::string list = "/proc/swaps") : list_(std::move(list)) {}

  /// Refreshes an outdated result: reads a file. Called by the pager's threads, under its mutex.
  void look(uint64_t now_ns);
  /// The result of the last look, or false if that is outdated. Under the pager's mutex.
  [[nodiscard]] bool is_in_memory(uint64_t now_ns) const { return in_memory_ && now_ns < good_until_ns_; }
  /// True if no swap space exists, as of at most a tenth of a second ago. Cheap. Under the pager's mutex.
  [[nodiscard]] bool is_absent(uint64_t now_ns);

 private:
  std::string list_;
  uint64_t good_until_ns_ = 0;
  bool in_memory_ = false;
  uint64_t absence_good_until_ns_ = 0;
  bool absent_ = false;
};

}  // namespace faultline::odp
