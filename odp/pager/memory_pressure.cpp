// SPDX-License-Identifier: BSD-3-Clause
#include "odp/pager/memory_pressure.hpp"

#include <algorithm>
#include <fstream>
#include <string_view>

namespace faultline::odp {
namespace {

constexpr uint64_t kPressureLookEveryNs = 5'000'000;
constexpr uint64_t kFindEveryNs = 1'000'000'000;
/// Memory counts as short above 7/8 of the limit.
constexpr uint64_t kFreeShare = 8;
constexpr uint64_t kUnlimited = uint64_t{1} << 60;

/// "max" and an empty file mean no limit.
uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : ~uint64_t{0};
}

uint64_t field_in(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  std::string key;
  uint64_t value = 0;
  while (file >> key >> value) {
    if (key == name) return value;
    file.ignore(256, '\n');
  }
  return 0;
}

}  // namespace

/// cgroups(7), /proc/pid/cgroup: "0::/a/b" (version 2) or "9:memory:/a/b" (version 1), below the usual mount
/// points, systemd's.
void MemoryPressure::find_groups() {
  groups_.clear();
  std::ifstream list("/proc/self/cgroup");
  for (std::string line; std::getline(list, line);) {
    const bool second = line.starts_with("0::");
    const size_t first_colon = line.find(':');
    const size_t colon = line.find(':', first_colon + 1);
    if (colon == line.npos) continue;
    const std::string controllers = "," + line.substr(first_colon + 1, colon - first_colon - 1) + ",";
    if (!second && controllers.find(",memory,") == controllers.npos) continue;
    const std::string mount = second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (std::string path = line.substr(colon + 1); path.size() > 1; path.resize(path.rfind('/'))) {
      const std::string folder = mount + path + "/";
      if (second) {
        groups_.push_back({folder + "memory.current", folder + "memory.max", folder + "memory.stat"});
      } else {
        groups_.push_back(
            {folder + "memory.usage_in_bytes", folder + "memory.limit_in_bytes", folder + "memory.stat"});
      }
    }
  }
}

bool MemoryPressure::is_short_in(const Group& group) {
  const uint64_t limit = number_in(group.limit);
  if (limit >= kUnlimited) return false;
  const uint64_t usage = number_in(group.usage);
  const uint64_t most = limit - limit / kFreeShare;
  if (usage == ~uint64_t{0} || usage <= most) return false;
  // Inactive page cache is reclaimed at no cost.
  const uint64_t cache = std::max(field_in(group.statistics, "inactive_file"),
                                  field_in(group.statistics, "total_inactive_file"));
  return usage - std::min(usage, cache) > most;
}

bool MemoryPressure::is_short_on_machine() {
  const uint64_t total = field_in("/proc/meminfo", "MemTotal:");
  const uint64_t available = field_in("/proc/meminfo", "MemAvailable:");
  return total != 0 && available < total / kFreeShare;
}

bool MemoryPressure::is_short(uint64_t now_ns) {
  if (now_ns < next_check_ns_) return short_;
  if (now_ns >= find_again_at_ns_) {
    find_groups();
    find_again_at_ns_ = now_ns + kFindEveryNs;
  }
  short_ = std::any_of(groups_.begin(), groups_.end(), is_short_in) || is_short_on_machine();
  next_check_ns_ = now_ns + kPressureLookEveryNs;
  return short_;
}

}  // namespace faultline::odp
