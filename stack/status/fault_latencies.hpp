// SPDX-License-Identifier: BSD-3-Clause
// The histogram of page faults as counters have it: "odp.fault_us.KIND.lt_N" and "odp.fault_us.KIND.more".
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace faultline::status {

inline constexpr std::string_view kLatencyPrefix = "odp.fault_us.";

struct LatencyBucket {
  uint64_t bound_us = 0;  ///< UINT64_MAX: no bound
  uint64_t count = 0;
};

/// What the name of a bucket's counter states.
struct LatencyName {
  std::string_view kind;
  uint64_t bound_us = 0;
};
/// Returns nullopt for any other counter.
[[nodiscard]] std::optional<LatencyName> latency_name_of(std::string_view counter);

/// Returns the buckets of each kind of fault by their bounds. Counters have a `name` and a `value`.
template <typename Counters>
[[nodiscard]] std::map<std::string, std::vector<LatencyBucket>> fault_latencies(const Counters& counters) {
  std::map<std::string, std::vector<LatencyBucket>> kinds;
  for (const auto& counter : counters)
    if (const auto name = latency_name_of(counter.name))
      kinds[std::string(name->kind)].push_back({name->bound_us, counter.value});
  for (auto& [kind, buckets] : kinds) std::ranges::sort(buckets, {}, &LatencyBucket::bound_us);
  return kinds;
}

}  // namespace faultline::status
