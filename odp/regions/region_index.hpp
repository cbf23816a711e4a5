// SPDX-License-Identifier: BSD-3-Clause
// All live regions by address, for the invalidation monitor and the program's calls. A lookup that matches
// no region costs a few loads without a lock; any other is logarithmic in the number of regions.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "odp/regions/address_range.hpp"
#include "odp/regions/child_table.hpp"
#include "odp/regions/region.hpp"
#include "stack/base/lazy_array.hpp"
#include "stack/base/pi_mutex.hpp"
#include "stack/base/process/signals_blocked.hpp"

namespace faultline::odp {

/// Counts the ranges that overlap each piece of the address space. To keep pieces few, small ranges are
/// counted in pieces of 16 MiB, large ones in pieces of 1 GiB.
class RangeFilter {
 public:
  [[nodiscard]] bool allocate() {
    return small_.allocate(kAddressSpaceBytes >> kSmallShift) &&
           large_.allocate(kAddressSpaceBytes >> kLargeShift);
  }
  void count(const AddressRange& range, uint32_t change) {
    const bool is_small = range.end - range.start <= uint64_t{1} << kLargeShift;
    LazyArray<std::atomic<uint32_t>>& counts = is_small ? small_ : large_;
    const unsigned shift = is_small ? kSmallShift : kLargeShift;
    for (uint64_t i = range.start >> shift; i <= (range.end - 1) >> shift && i < counts.size(); ++i)
      counts[i].fetch_add(change, std::memory_order_seq_cst);
  }
  /// False only if no counted range is near.
  [[nodiscard]] bool may_have(const AddressRange& range) const {
    constexpr uint64_t kLongBytes = uint64_t{64}
                                    << kLargeShift;  // a longer scan would cost more than the map lookup
    if (range.is_empty()) return false;
    if (range.end - range.start > kLongBytes || range.end > kAddressSpaceBytes) return true;
    return any(small_, kSmallShift, range) || any(large_, kLargeShift, range);
  }

 private:
  static constexpr unsigned kSmallShift = 24;
  static constexpr unsigned kLargeShift = 30;

  static bool any(const LazyArray<std::atomic<uint32_t>>& counts, unsigned shift, const AddressRange& range) {
    for (uint64_t i = range.start >> shift; i <= (range.end - 1) >> shift; ++i)
      if (counts[i].load(std::memory_order_seq_cst) != 0) return true;
    return false;
  }

  LazyArray<std::atomic<uint32_t>> small_;
  LazyArray<std::atomic<uint32_t>> large_;
};

class RegionIndex {
 public:
  [[nodiscard]] bool allocate() { return filter_.allocate(); }

  /// False if memory is short.
  [[nodiscard]] bool insert(Region& region) {
    // The node is allocated before the lock is taken: a thread that waits for the monitor may hold the
    // heap's lock, and the monitor needs this lock.
    Map made;
    try {
      made.emplace(key_of(region), region.end_page_address());
    } catch (const std::bad_alloc&) {
      return false;
    }
    Map::node_type node = made.extract(made.begin());
    const AddressRange range = range_of(region);
    const SignalsBlocked blocked;
    const std::lock_guard lock(mutex_);
    classes_[class_of(range)].insert(std::move(node));
    note(region, range, 1);
    return true;
  }

  /// After it returns no visitor holds the region.
  void remove(Region& region) {
    const AddressRange range = range_of(region);
    Map::node_type node;
    const SignalsBlocked blocked;
    {
      const std::lock_guard lock(mutex_);
      node = classes_[class_of(range)].extract(key_of(region));
      if (node.empty()) return;
      note(region, range, ~uint32_t{0});
    }
  }

  /// Returns any one region, or nullptr if there is none.
  [[nodiscard]] Region* any() {
    const SignalsBlocked blocked;
    const std::lock_guard lock(mutex_);
    for (const Map& regions : classes_)
      if (!regions.empty()) return regions.begin()->first.second;
    return nullptr;
  }

  /// False only if no region overlaps [start, end). Without locks.
  [[nodiscard]] bool may_have(const AddressRange& range) const {
    return whole_.load(std::memory_order_seq_cst) != 0 || filter_.may_have(range);
  }

  /// Calls visit(region, pages) for each region that overlaps [start, end); for an implicit region, for its
  /// children. `pages` is the overlapping part. The caller has signals blocked, or is the monitor.
  template <typename Visit>
  void for_each_in(uint64_t start, uint64_t end, Visit visit) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < kClasses; ++i) {
      Map& regions = classes_[i];
      if (regions.empty()) continue;
      // No region of this class is longer.
      const uint64_t longest = i + kPageShift >= 64 ? ~uint64_t{0} : uint64_t{1} << (i + kPageShift);
      const uint64_t from = start > longest ? start - longest : 0;
      for (auto it = regions.lower_bound({from, nullptr}); it != regions.end() && it->first.first < end; ++it)
        if (it->second > start) visit_part(*it->first.second, start, end, visit);
    }
  }

 private:
  using Key = std::pair<uint64_t, Region*>;  ///< first address of the region's pages
  using Map = std::map<Key, uint64_t>;       ///< end of the region's pages
  static constexpr size_t kClasses = 64 - kPageShift;

  static Key key_of(Region& region) { return {region.start_page_address(), &region}; }
  static AddressRange range_of(const Region& region) {
    return {region.start_page_address(), region.end_page_address()};
  }
  /// Class of regions of more than 2^(class-1) and up to 2^class pages.
  static size_t class_of(const AddressRange& range) {
    return static_cast<size_t>(std::bit_width(((range.end - range.start) >> kPageShift) - 1));
  }

  void note(const Region& region, const AddressRange& range, uint32_t change) {
    if (region.children != nullptr)
      whole_.fetch_add(change, std::memory_order_seq_cst);
    else
      filter_.count(range, change);
  }

  template <typename Visit>
  static void visit_part(Region& region, uint64_t start, uint64_t end, Visit& visit) {
    const uint64_t from = std::max(start, region.start_page_address());
    const uint64_t to = std::min(end, region.end_page_address());
    if (region.children != nullptr) return region.children->for_each_in(from, to, visit);
    const size_t first = (from >> kPageShift) - region.first_page;
    visit(region, PageRange{first, ((to + kPageBytes - 1 - from) >> kPageShift)});
  }

  RangeFilter filter_;
  std::atomic<uint32_t> whole_{0};  ///< implicit regions
  PiMutex mutex_;
  std::array<Map, kClasses> classes_;
};

}  // namespace faultline::odp
