// SPDX-License-Identifier: BSD-3-Clause
// All counters of a device in one flat list: "odp.", "transport.", "parse.", "drop.", "port.", and those of
// components above verbs.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "stack/base/counter_row.hpp"
#include "stack/verbs/objects/backend.hpp"

namespace faultline::verbs {

/// A counter's description, as readers see it.
struct CounterText {
  std::string name;  ///< with its component's prefix
  std::string_view unit;
  CounterKind kind;
  std::string help;
};

/// Counters of the component above verbs. Both functions append the same number of entries, in the same
/// order.
struct CounterSource {
  void (*describe)(std::vector<CounterText>& texts);
  void (*read)(DeviceBackend& backend, std::vector<uint64_t>& values);
};
/// Sets the only source, before the first call of counter_texts(). `source` must live forever.
void set_counter_source(const CounterSource& source);

/// Returns all counters in the order of counter_values(). Built once; lives as long as the process.
[[nodiscard]] const std::vector<CounterText>& counter_texts();
/// Returns the counter values, summed over all cores.
[[nodiscard]] std::vector<uint64_t> counter_values(DeviceBackend& backend);

/// The counters of a core: a piece of counter_texts() that begins at `first`. transport::flatten() has their
/// order.
struct CoreCounterRange {
  size_t first = 0;
  size_t count = 0;
};
[[nodiscard]] CoreCounterRange core_counter_range();

/// Appends the rows of a component's table.
template <typename Row, size_t count>
void describe_rows(std::string_view prefix, const Row (&rows)[count], std::vector<CounterText>& texts) {
  for (const Row& row : rows)
    texts.push_back({std::string(prefix) + std::string(row.name), row.unit, row.kind, std::string(row.help)});
}
template <typename Row, size_t count, typename Counters>
void read_rows(const Row (&rows)[count], const Counters& counters, std::vector<uint64_t>& values) {
  for (const Row& row : rows) values.push_back(counters.*row.member);
}

}  // namespace faultline::verbs
