// SPDX-License-Identifier: BSD-3-Clause
// One registered range of the program's memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "odp/regions/counter_cells.hpp"
#include "odp/regions/memory_domain.hpp"
#include "odp/regions/page_map.hpp"

namespace faultline::odp {

inline constexpr uint32_t kWriteRights = kLocalWrite | kRemoteWrite | kRemoteAtomic;
/// Pins and their use are tracked per granule of this many pages.
inline constexpr size_t kGranulePages = 16;

class ChildTable;

/// Counters of one region, in pages, named as in rdma-core's statistics (rdma-statistic(8), "mr":
/// page_faults, page_invalidations, page_prefetch). Any serving thread writes; any thread reads.
struct RegionCounterCells {
  Cell page_faults;
  Cell page_invalidations;
  Cell page_prefetch;
};

struct Region {
  Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region();

  Key key = 0;
  ProtectionDomain domain = 0;
  uint32_t access = 0;
  bool on_demand = false;
  bool is_of_other_device = false;  ///< RegionRequest::is_of_other_device
  uint64_t address = 0;
  uint64_t length_bytes = 0;
  uint64_t iova = 0;
  uint64_t first_page = 0;  ///< address / kPageBytes

  /// Children of an implicit region, which has no pages of its own and is otherwise opaque to the engines.
  std::unique_ptr<ChildTable> children;
  /// For a child: the table that holds it.
  const ChildTable* parent_children = nullptr;

  RegionCounterCells own_counters;
  RegionCounterCells* counters = &own_counters;  ///< a child uses its parent's counters

  PageMap pages;
  /// A page is or was dead or doomed; engines look at a classic region's page map only then.
  std::atomic<bool> has_barred_pages{false};
  /// The region had holes when it was registered: the pager must watch what fills them later.
  bool watch_at_fault = false;
  /// Another userfaultfd may hold part of the region, and is looked for again at each fault. The program
  /// then provides the pages, however few there are. Such a region's pages are never pinned.
  std::atomic<bool> is_paged_by_program{false};
  /// Some pages could not be pinned: the kernel reclaims such pages without an event.
  std::atomic<bool> has_unpinnable{false};
  std::atomic<uint64_t> resident_pages{0};

  /// Per granule, for on-demand regions: head of the chain of pin records (0: none), and whether an engine
  /// used the granule lately.
  LazyArray<uint32_t> granule_pins;
  uint32_t pin_records = 0;  ///< in those chains; guarded, like the chains, by the pin table's mutex
  LazyArray<std::atomic<uint8_t>> granule_used;
  /// Slots of a classic region's pins.
  std::vector<uint32_t> whole_pins;
  uint64_t whole_pinned_bytes = 0;

  /// Number of bound windows; kClosing is set during deregistration, which prevents further binds.
  std::atomic<uint32_t> bound_windows{0};
  static constexpr uint32_t kClosing = 1U << 31;

  /// False if the region is being deregistered.
  [[nodiscard]] bool bind_one() {
    if ((bound_windows.fetch_add(1, std::memory_order_acq_rel) & kClosing) == 0) return true;
    unbind_one();
    return false;
  }
  void unbind_one() { bound_windows.fetch_sub(1, std::memory_order_acq_rel); }
  /// False if windows are bound, or another thread is closing the region.
  [[nodiscard]] bool close_to_windows() {
    uint32_t none = 0;
    return bound_windows.compare_exchange_strong(none, kClosing, std::memory_order_acq_rel);
  }

  [[nodiscard]] uint64_t page_count() const {
    return ((address + length_bytes - 1) >> kPageShift) - first_page + 1;
  }
  [[nodiscard]] uint64_t start_page_address() const { return first_page << kPageShift; }
  [[nodiscard]] uint64_t end_page_address() const { return (first_page + page_count()) << kPageShift; }
};

/// Checks key, domain, right and range of an access. `need` 0 is a local read, which every region allows.
[[nodiscard]] inline bool grants(const Region& region, const Target& target, uint64_t va,
                                 uint64_t length_bytes) {
  if (region.domain != target.domain) return false;
  if ((target.need & ~region.access) != 0) return false;
  // Unsigned: a va below iova wraps to an offset beyond any length.
  const uint64_t offset = va - region.iova;
  return offset <= region.length_bytes && length_bytes <= region.length_bytes - offset;
}

struct PageRange {
  size_t first = 0;
  size_t count = 0;
};
/// Returns the pages of a non-empty access that `grants` has allowed.
[[nodiscard]] inline PageRange pages_of(const Region& region, uint64_t va, uint64_t length_bytes) {
  const uint64_t address = region.address + (va - region.iova);
  const uint64_t first = (address >> kPageShift) - region.first_page;
  const uint64_t last = ((address + length_bytes - 1) >> kPageShift) - region.first_page;
  return {first, last - first + 1};
}

}  // namespace faultline::odp
