// SPDX-License-Identifier: BSD-3-Clause
// The statistics of an interface of ours, as the kernel shows those of its own: RDMA packets are all that
// goes by it. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <linux/if_link.h>

#include "stack/abi/tree/standard_counters.hpp"

namespace faultline::abi {

/// Returns the statistics of an interface (RTM_GETLINK of rtnetlink(7)) from its device's counters.
[[nodiscard]] rtnl_link_stats64 interface_statistics(std::span<const NamedCounter> counters);

/// Returns the low halves, as in struct rtnl_link_stats of the kernel.
[[nodiscard]] rtnl_link_stats low_halves(const rtnl_link_stats64& statistics);

/// A file of the folder "statistics" (Documentation/ABI/testing/sysfs-class-net-statistics).
struct StatisticsFile {
  std::string_view name;
  uint64_t value;
};
[[nodiscard]] std::vector<StatisticsFile> statistics_files(const rtnl_link_stats64& statistics);

/// Returns the interface's row of /proc/net/dev (proc(5)), with its newline.
[[nodiscard]] std::string statistics_row(std::string_view interface, const rtnl_link_stats64& statistics);

}  // namespace faultline::abi
