// SPDX-License-Identifier: BSD-3-Clause
#include "stack/status/fault_latencies.hpp"

#include <charconv>
#include <system_error>

namespace faultline::status {

std::optional<LatencyName> latency_name_of(std::string_view counter) {
  constexpr std::string_view kLess = "lt_";
  if (!counter.starts_with(kLatencyPrefix)) return std::nullopt;
  const std::string_view rest = counter.substr(kLatencyPrefix.size());
  const size_t dot = rest.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view bound = rest.substr(dot + 1);
  LatencyName name{rest.substr(0, dot), UINT64_MAX};
  if (!bound.starts_with(kLess)) return name;
  const char* const end = bound.data() + bound.size();
  if (std::from_chars(bound.data() + kLess.size(), end, name.bound_us).ec != std::errc()) return std::nullopt;
  return name;
}

}  // namespace faultline::status
