// SPDX-License-Identifier: BSD-3-Clause
// Parts of an address range that are not mapped.
#pragma once

#include "odp/regions/address_range.hpp"
#include "odp/regions/page_map.hpp"

namespace faultline::odp {

/// True if part of a page-aligned range is not mapped. Uses msync(2) with MS_ASYNC, which only checks
/// (ENOMEM). Not a cancellation point.
[[nodiscard]] bool has_hole(const AddressRange& range);

/// Calls visit(AddressRange) for each part of a page-aligned range that is not mapped. Not a cancellation
/// point.
template <typename Visit>
void for_each_hole(const AddressRange& range, Visit visit) {
  if (range.is_empty() || !has_hole(range)) return;
  if (range.end - range.start <= kPageBytes) return visit(range);
  const uint64_t pages = (range.end - range.start) >> kPageShift;
  const uint64_t middle = range.start + (pages / 2 << kPageShift);
  for_each_hole({range.start, middle}, visit);
  for_each_hole({middle, range.end}, visit);
}

}  // namespace faultline::odp
