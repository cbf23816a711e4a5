// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "stack/transport/shared/counters.hpp"
#include "stack/verbs/objects/port_counters.hpp"

namespace faultline::glue {

/// Counter of a dropped frame: an index in the list of transport::flatten(), or after it, of
/// verbs::kPortCounterRows. verbs::counter_texts() has them in the same order, from
/// verbs::core_counter_range().first on.
using DropCounter = uint32_t;
inline constexpr DropCounter kNotDropped = UINT32_MAX;
inline constexpr size_t kDropCounters =
    transport::kFlatCounters + std::size(verbs::kPortCounterRows<uint64_t>);

[[nodiscard]] constexpr DropCounter drop_counter(uint64_t verbs::PortCounters::*member) {
  DropCounter index = transport::kFlatCounters;
  for (const auto& row : verbs::kPortCounterRows<uint64_t>) {
    if (row.member == member) return index;
    ++index;
  }
  return kNotDropped;
}

}  // namespace faultline::glue
