// SPDX-License-Identifier: BSD-3-Clause
// Detects whether memory is short for this process: in one of its memory cgroups, or on the machine. The
// pager then pages out at once what it unpins. Otherwise such pages stay on the active list until the kernel
// finds nothing to reclaim in time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace faultline::odp {

class MemoryPressure {
 public:
  /// Reads files, so it caches its result for a while. Owned by the pager.
  [[nodiscard]] bool is_short(uint64_t now_ns);

 private:
  struct Group {
    std::string usage;
    std::string limit;
    std::string statistics;
  };
  void find_groups();
  [[nodiscard]] static bool is_short_in(const Group& group);
  [[nodiscard]] static bool is_short_on_machine();

  std::vector<Group> groups_;  ///< this process's cgroup and its ancestors
  uint64_t next_check_ns_ = 0;
  uint64_t find_again_at_ns_ = 0;
  bool short_ = false;
};

}  // namespace faultline::odp
