// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace faultline::odp {

/// The addresses from `start` up to, not including, `end`.
struct AddressRange {
  uint64_t start = 0;
  uint64_t end = 0;

  [[nodiscard]] bool is_empty() const { return start >= end; }
  [[nodiscard]] bool overlaps(const AddressRange& other) const {
    return start < other.end && other.start < end;
  }
};

}  // namespace faultline::odp
