// SPDX-License-Identifier: BSD-3-Clause
#include "odp/regions/range_counts.hpp"

#include <algorithm>

namespace faultline::odp {

RangeCounts::Map::iterator RangeCounts::split(uint64_t at) {
  const auto after = counts_.upper_bound(at);
  const auto holder = std::prev(after);
  return holder->first == at ? holder : counts_.emplace_hint(after, at, holder->second);
}

void RangeCounts::add(uint64_t start, uint64_t end) {
  const auto last = split(end);
  for (auto it = split(start); it != last; ++it) ++it->second;
}

bool RangeCounts::any_in(uint64_t start, uint64_t end) const {
  for (auto it = std::prev(counts_.upper_bound(start)); it != counts_.end() && it->first < end; ++it)
    if (it->second != 0) return true;
  return false;
}

/// Merges neighbours with equal counts; otherwise the map would keep every former border.
void RangeCounts::merge(Map::iterator first, uint64_t end) {
  auto it = first == counts_.begin() ? first : std::prev(first);
  for (auto next = std::next(it); next != counts_.end() && it->first <= end;) {
    if (next->second == it->second) {
      next = counts_.erase(next);
    } else {
      it = next++;
    }
  }
}

}  // namespace faultline::odp
