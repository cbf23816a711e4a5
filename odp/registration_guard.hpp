// SPDX-License-Identifier: BSD-3-Clause
// What a registration is refused for, or logged, where a guard is missing (guards.hpp).
#pragma once

#include <cstdint>

#include "odp/mappings/userfault.hpp"
#include "odp/regions/memory_domain.hpp"

namespace faultline::odp {

class InvalidationMonitor;
struct Region;

/// Lets on-demand memory in only where an unmapping by the program would be reported: by the library's hooks
/// or by userfaultfd. Otherwise a peer's WRITE could change what the program maps there later.
class UnmapGuard {
 public:
  UnmapGuard() = default;
  UnmapGuard(const DomainConfig& config, const InvalidationMonitor& monitor);

  // Each: 0, or ENOTSUP and a line in the log, one a process.

  [[nodiscard]] int check_implicit() const;
  /// Before anything is done for the region. Page-aligned.
  [[nodiscard]] int check_range(uint64_t start, uint64_t end) const;
  /// After InvalidationMonitor::watch has returned `watch_error`.
  [[nodiscard]] int check_watched(const Region& region, int watch_error) const;

 private:
  bool needs_events_ = false;  ///< the hooks are not there, and the configuration wants one of the two
  UserfaultLevel level_ = UserfaultLevel::none;
};

/// Of a classic region that could not be pinned.
struct UnpinnedClassic {
  uint64_t length_bytes = 0;
  uint64_t budget_bytes = 0;  ///< in effect
  uint64_t wanted_bytes = 0;  ///< by configuration
  int error = 0;              ///< PinTable::pin_whole's
  bool refuse = false;
};
/// What the registration returns: 0, or ENOMEM where the configuration refuses such regions. One line in the
/// log a process.
[[nodiscard]] int judge_unpinned(const UnpinnedClassic& facts);

/// The kernel refused to release pins: one line in the log. Nothing where `error` is 0.
void log_stuck_pins(int error);

}  // namespace faultline::odp
