// SPDX-License-Identifier: BSD-3-Clause
// Whether memory is short for this process: in one of its memory cgroups, or on the machine. What the pager
// unpins then goes out at once, instead of standing on the active list until the kernel finds nothing to
// reclaim in time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace faultline::odp {

class MemoryPressure {
 public:
  /// Looks again only after a while, since it reads files. Owned by the pager.
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

  std::vector<Group> groups_;  ///< this process's own and those above it
  uint64_t look_again_at_ns_ = 0;
  uint64_t find_again_at_ns_ = 0;
  bool short_ = false;
};

}  // namespace faultline::odp
