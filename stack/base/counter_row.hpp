// SPDX-License-Identifier: BSD-3-Clause
// The description of a counter. Each room has one table of rows; the API, telemetry and docs/counters.md are
// made from the tables.
#pragma once

#include <cstdint>
#include <string_view>

namespace faultline {

enum class CounterKind : uint8_t {
  count,   ///< only grows
  gauge,   ///< goes up and down
  maximum  ///< the largest value so far
};

/// A member of `Counters`, whose numbers are of type `Number`: uint64_t, or an atomic cell of one.
template <typename Counters, typename Number = uint64_t>
struct CounterRow {
  std::string_view name;  ///< without the prefix of its room
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
