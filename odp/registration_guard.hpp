// SPDX-License-Identifier: BSD-3-Clause
// Decides which registrations are refused, or logged, if a guard is missing (guards.hpp).
#pragma once

#include <cstdint>

#include "odp/mappings/userfault.hpp"
#include "odp/regions/memory_domain.hpp"

namespace faultline::odp {

class InvalidationMonitor;
struct Region;

/// Admits on-demand memory only if an unmapping by the program would be reported: by the library's hooks or
/// by userfaultfd. Otherwise a peer's WRITE could change what the program maps there later.
class UnmapGuard {
 public:
  UnmapGuard() = default;
  UnmapGuard(const DomainConfig& config, const InvalidationMonitor& monitor);

  // Each returns 0, or ENOTSUP and logs a line, one per process.

  [[nodiscard]] int check_implicit() const;
  /// Call before anything is done for the region. Page-aligned.
  [[nodiscard]] int check_range(uint64_t start, uint64_t end) const;
  /// Call after InvalidationMonitor::watch has returned `watch_error`.
  [[nodiscard]] int check_watched(const Region& region, int watch_error) const;

 private:
  bool needs_events_ = false;  ///< the hooks are missing, and the configuration requires one of the two
  UserfaultLevel level_ = UserfaultLevel::none;
};

/// Facts of a classic region that could not be pinned.
struct UnpinnedClassic {
  uint64_t length_bytes = 0;
  uint64_t budget_bytes = 0;  ///< in effect
  uint64_t wanted_bytes = 0;  ///< by configuration
  int error = 0;              ///< from PinTable::pin_whole
  bool refuse = false;
};
/// Returns the result of the registration: 0, or ENOMEM if the configuration refuses such regions. Logs one
/// line per process.
[[nodiscard]] int judge_unpinned(const UnpinnedClassic& facts);

/// Logs one line if the kernel refused to release pins. Does nothing if `error` is 0.
void log_stuck_pins(int error);

}  // namespace faultline::odp
