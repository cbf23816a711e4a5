// SPDX-License-Identifier: BSD-3-Clause
// All live regions by address, for the invalidation monitor: a dense array to scan, which never allocates
// after it was made.
#pragma once

#include <cstdint>
#include <mutex>

#include "odp/child_table.hpp"
#include "odp/lazy_array.hpp"
#include "odp/pi_mutex.hpp"
#include "odp/region.hpp"

namespace faultline::odp {

class RegionIndex {
 public:
  static constexpr size_t kMaxRegions = size_t{1} << 20;

  [[nodiscard]] bool allocate() { return entries_.allocate(kMaxRegions); }

  /// False where it is full.
  [[nodiscard]] bool insert(Region& region) {
    const std::lock_guard lock(mutex_);
    if (size_ == kMaxRegions) return false;
    region.index_position = size_;
    entries_[size_++] = {region.start_page_address(), region.end_page_address(), &region};
    return true;
  }

  /// After it returns no visitor holds the region.
  void remove(Region& region) {
    const std::lock_guard lock(mutex_);
    entries_[region.index_position] = entries_[--size_];
    entries_[region.index_position].region->index_position = region.index_position;
  }

  /// One of the regions, or nullptr where there is none.
  [[nodiscard]] Region* any() {
    const std::lock_guard lock(mutex_);
    return size_ == 0 ? nullptr : entries_[size_ - 1].region;
  }

  /// Calls visit(region, pages) for each region that meets [start, end), for an implicit one for its
  /// children; `pages` is the part that does.
  template <typename Visit>
  void for_each_in(uint64_t start, uint64_t end, Visit visit) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < size_; ++i) {
      const Entry& entry = entries_[i];
      if (entry.start >= end || entry.end <= start) continue;
      const uint64_t from = start > entry.start ? start : entry.start;
      const uint64_t to = end < entry.end ? end : entry.end;
      if (entry.region->children != nullptr) {
        entry.region->children->for_each_in(from, to, visit);
        continue;
      }
      const size_t first = (from >> kPageShift) - entry.region->first_page;
      visit(*entry.region, PageRange{first, ((to + kPageBytes - 1 - from) >> kPageShift)});
    }
  }

 private:
  struct Entry {
    uint64_t start;
    uint64_t end;
    Region* region;
  };
  PiMutex mutex_;
  LazyArray<Entry> entries_;
  size_t size_ = 0;
};

}  // namespace faultline::odp
