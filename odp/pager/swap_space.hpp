// SPDX-License-Identifier: BSD-3-Clause
// Whether what is swapped out is still in memory, compressed (zram): then it comes back in a few microseconds
// of computing, and nobody waits for a device.
#pragma once

#include <cstdint>
#include <string>

namespace faultline::odp {

class SwapSpace {
 public:
  explicit SwapSpace(std::string list = "/proc/swaps") : list_(std::move(list)) {}

  /// Looks again where the last look is too old: reads a file. The pager's threads, under its mutex.
  void look(uint64_t now_ns);
  /// As of a look that is not too old, else false. Under the pager's mutex.
  [[nodiscard]] bool is_in_memory(uint64_t now_ns) const { return in_memory_ && now_ns < good_until_ns_; }
  /// Whether there is none at all, as of a tenth of a second ago at most. Cheap. Under the pager's mutex.
  [[nodiscard]] bool is_absent(uint64_t now_ns);

 private:
  std::string list_;
  uint64_t good_until_ns_ = 0;
  bool in_memory_ = false;
  uint64_t absence_good_until_ns_ = 0;
  bool absent_ = false;
};

}  // namespace faultline::odp
