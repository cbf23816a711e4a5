// SPDX-License-Identifier: BSD-3-Clause
// Number of users of each address.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory_resource>

namespace faultline::odp {

class RangeCounts {
 public:
  explicit RangeCounts(std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : counts_(memory) {
    counts_.emplace(0, 0);
  }

  /// Throws std::bad_alloc; then no count has changed.
  void add(uint64_t start, uint64_t end);

  /// Calls unused(from, to) for each part that has no user left. Throws std::bad_alloc; then no count has
  /// changed.
  template <typename Unused>
  void remove(uint64_t start, uint64_t end, Unused unused) {
    const auto last = split(end);
    const auto first = split(start);
    for (auto it = first; it != last; ++it) --it->second;
    for_each_run(
        first, last, [](uint32_t users) { return users == 0; }, unused);
    merge(first, end);
  }

  [[nodiscard]] bool any_in(uint64_t start, uint64_t end) const;

  /// Calls visit(from, to) for each part of the range that has users.
  template <typename Visit>
  void for_each_used(uint64_t start, uint64_t end, Visit visit) const {
    for (auto it = std::prev(counts_.upper_bound(start)); it != counts_.end() && it->first < end;) {
      if (it->second == 0) {
        ++it;
        continue;
      }
      const uint64_t from = std::max(start, it->first);
      while (it != counts_.end() && it->second != 0 && it->first < end) ++it;
      visit(from, it == counts_.end() ? end : std::min(end, it->first));
    }
  }

 private:
  using Map = std::pmr::map<uint64_t, uint32_t>;

  Map::iterator split(uint64_t at);
  void merge(Map::iterator first, uint64_t end);
  template <typename Wanted, typename Visit>
  static void for_each_run(Map::iterator first, Map::iterator last, Wanted wanted, Visit visit) {
    while (first != last) {
      if (!wanted(first->second)) {
        ++first;
        continue;
      }
      const uint64_t from = first->first;
      while (first != last && wanted(first->second)) ++first;
      visit(from, first->first);
    }
  }

  Map counts_;  ///< by start; a count holds up to the next entry's start
};

}  // namespace faultline::odp
