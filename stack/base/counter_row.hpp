// SPDX-License-Identifier: BSD-3-Clause
// Describes a counter. Each component has one table of rows. The API, telemetry and docs/counters.md are
// generated from the tables.
#pragma once

#include <cstdint>
#include <string_view>

namespace faultline {

enum class CounterKind : uint8_t {
  count,   ///< only increases
  gauge,   ///< increases and decreases
  maximum  ///< the largest value so far
};

/// Describes a member of `Counters`. `Number` is the member's type: uint64_t, or an atomic cell that holds
/// one.
template <typename Counters, typename Number = uint64_t>
struct CounterRow {
  std::string_view name;  ///< without the component's prefix
  std::string_view unit;  ///< what is counted: "packets", "bytes", "ns"
  CounterKind kind;
  std::string_view help;  ///< a phrase without a full stop
  Number Counters::*member;
};

[[nodiscard]] constexpr std::string_view name_of(CounterKind kind) {
  constexpr std::string_view kNames[] = {"count", "gauge", "maximum"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace faultline
