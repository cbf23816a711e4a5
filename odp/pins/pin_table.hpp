// SPDX-License-Identifier: BSD-3-Clause
// Which pages are pinned, within a budget. On-demand pages are pinned by runs inside a granule, and are
// evicted by CLOCK (second chance) if the budget is short. Classic regions are pinned whole and stay pinned.
//
// Memory that cannot be pinned (shared mappings of files) has records in the same CLOCK. The kernel reclaims
// such a page without an event, or blocks a thread that writes to it until others are written back. Only
// pages that were made resident a moment ago therefore count as resident. For the others an engine requests
// a fault rather than wait for a disk itself.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "odp/copy/restartable_copy.hpp"
#include "odp/pins/pin_slots.hpp"
#include "odp/regions/counter_cells.hpp"
#include "odp/regions/region.hpp"
#include "stack/base/lazy_array.hpp"
#include "stack/base/pi_mutex.hpp"

namespace faultline::odp {

/// Returns RLIMIT_MEMLOCK if it limits this process, UINT64_MAX if not (CAP_IPC_LOCK, or no limit).
[[nodiscard]] uint64_t lock_limit_bytes();
/// Returns the bytes that may be pinned: `wanted_bytes`, and at most three quarters of lock_limit_bytes().
/// The kernel counts by user, and the program's own io_uring, AF_XDP and perf buffers need the rest.
[[nodiscard]] uint64_t effective_pin_budget(uint64_t wanted_bytes);

class PinTable {
 public:
  PinTable(uint64_t budget_bytes, CounterCells& counters)
      : budget_bytes_(budget_bytes), counters_(counters) {}

  [[nodiscard]] bool allocate() { return records_.allocate(kMaxRecords + 1); }

  /// Ranges that lost their pins to make room.
  struct Victims {
    struct Range {
      uint64_t address;
      uint64_t length_bytes;
    };
    std::array<Range, 32> ranges;  ///< further ones are not reported
    size_t count = 0;
  };

  /// Pins those of the pages that are not pinned yet; counts a fallback if some could not be. Pager only.
  /// Does not evict pins made at or after `protect_since_ns`: pages just faulted in stay until their waiter
  /// has used them. Pages without room stay resident without a pin, so that a working set above the budget
  /// makes progress.
  void pin_pages(Region& region, PageRange pages, uint64_t now_ns, uint64_t protect_since_ns,
                 Victims* victims = nullptr);
  /// The same for pages that may be absent: the kernel makes them resident and writable in the call that pins
  /// them. True if all are pinned now; otherwise the populate that follows finds the error. Pager only.
  [[nodiscard]] bool pin_absent_pages(Region& region, PageRange pages, uint64_t now_ns,
                                      uint64_t protect_since_ns, Victims* victims);
  /// For pages that were just written to, if the kernel will reclaim none of them soon: they count as pinned
  /// now and are pinned later, all of a granule in one call, which costs little more than one page. Excludes
  /// pages for which there is no room, and those that an earlier pin may hold. Pager only.
  void pin_later(Region& region, PageRange pages, uint64_t now_ns);
  /// Pins the granules that have waited since before `before_ns`. Pager only.
  void pin_waiting(uint64_t before_ns);
  /// Reserves room for the pins of a whole region, before anything refers to it. Throws std::bad_alloc.
  static void reserve_whole(Region& region);
  /// Pins a whole classic region; on-demand pages may lose their pins for it. Returns 0, or an errno and
  /// counts a fallback: ENOMEM over the budget, else PinSlots::pin's.
  [[nodiscard]] int pin_whole(Region& region);

  /// For memory that cannot be pinned: makes absent what became resident before `before_ns`. Pager only.
  void expire_unpinned(uint64_t before_ns);

  /// Calls visit(pages) for each run of the pages that has no pin.
  template <typename Visit>
  void for_each_unpinned(const Region& region, PageRange pages, Visit visit);

  /// Releases the pins that overlap the pages. A signal handler that has interrupted this table's work on
  /// its own thread leaves the release to the end of that work.
  void unpin_pages(Region& region, PageRange pages);
  /// Releases all pins of the region.
  void unpin_all(Region& region);

  [[nodiscard]] uint64_t budget_bytes() const { return budget_bytes_; }
  /// Returns why the kernel refused to release a pin; 0 if it never has, and from the second call on.
  [[nodiscard]] int take_release_error() { return release_error_.exchange(0, std::memory_order_relaxed); }

  /// Engines record use of granules only while the CLOCK may need it.
  [[nodiscard]] bool tracks_use() const { return tracks_use_.load(std::memory_order_relaxed); }

 private:
  /// Half for pins, half for ranges without a pin.
  static constexpr uint32_t kMaxRecords = 2 * PinSlots::kMaxSlots;

  struct Record {
    Region* region;
    uint64_t pinned_at_ns;
    uint32_t granule;
    uint32_t next;       ///< in the granule's chain; 0: none
    uint16_t page_mask;  ///< in the granule; 0: the record is unused
    bool waits = false;  ///< for its pin; at most one record of a granule waits
  };
  /// A granule with a record that waits, or that had one.
  struct Waiting {
    Region* region;
    size_t granule;
    uint64_t since_ns;
  };
  /// Most granules that wait for their pins.
  static constexpr size_t kMostWaiting = 8;

  [[nodiscard]] bool make_room(uint64_t bytes, uint64_t protect_since_ns, Victims* victims);
  [[nodiscard]] bool evict_one(uint64_t protect_since_ns, Victims* victims);
  /// The circumstances of a call that pins. If `of_absent`, a run that fails gets no record without a pin.
  struct Purpose {
    uint64_t now_ns;
    uint64_t protect_since_ns;
    Victims* victims;
    bool of_absent;
  };
  [[nodiscard]] bool pin_missing(Region& region, PageRange pages, const Purpose& purpose);
  [[nodiscard]] bool pin_run(Region& region, size_t granule, unsigned first, unsigned count,
                             const Purpose& purpose);
  [[nodiscard]] uint32_t waiting_record_of(const Region& region, size_t granule) const;
  void pin_oldest_waiting();
  void forget_waiting(const Region& region);
  void drop_record(uint32_t id);
  void drop_records_in(Region& region, PageRange pages);
  void drop_pages(const Record& record);
  void account(uint64_t bytes, bool add, bool pinned);
  /// False if the kernel refuses: then the bytes stay pinned and count as such.
  bool release(uint32_t slot, uint64_t bytes);
  /// Returns a record for a run that could not be pinned; 0 if none is left.
  [[nodiscard]] uint32_t take_unpinned();

  const uint64_t budget_bytes_;
  CounterCells& counters_;
  /// Holds mutex_; at its end executes what a signal handler on its thread has left.
  class Hold;
  void drop_left();

  /// A release that a signal handler has left.
  struct LeftRange {
    Region* region;
    PageRange pages;
  };

  PiMutex mutex_;
  std::atomic<void*> holder_{nullptr};  ///< thread pointer of mutex_'s holder
  std::array<LeftRange, 16> left_{};    ///< written and read only by the holder's thread
  size_t left_count_ = 0;
  PinSlots slots_;
  LazyArray<Record> records_;      ///< index: slot + 1; higher indices are for ranges without a pin
  uint32_t free_unpinned_ = 0;     ///< chained by `next`
  uint32_t highest_unpinned_ = 0;  ///< ever taken, counted from 0
  uint32_t highest_ = 0;
  uint32_t hand_ = 0;
  uint64_t held_bytes_ = 0;                      ///< pinned, and what counts as such
  uint64_t whole_bytes_ = 0;                     ///< part of held_bytes_: classic regions
  bool release_failed_ = false;                  ///< set once, never cleared
  std::atomic<int> release_error_{0};            ///< error of that failure, until it is taken
  std::array<Waiting, kMostWaiting> waiting_{};  ///< the oldest first
  size_t waiting_count_ = 0;
  std::atomic<bool> tracks_use_{false};
};

class PinTable::Hold {
 public:
  explicit Hold(PinTable& table) : table_(table) {
    table_.mutex_.lock();
    table_.holder_.store(thread_pointer(), std::memory_order_relaxed);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() {
    for (;;) {
      if (table_.left_count_ != 0) [[unlikely]]
        table_.drop_left();
      table_.holder_.store(nullptr, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      // A handler that ran in between may have left a release.
      if (table_.left_count_ == 0) [[likely]]
        break;
      table_.holder_.store(thread_pointer(), std::memory_order_relaxed);
    }
    table_.mutex_.unlock();
  }

 private:
  PinTable& table_;
};

template <typename Visit>
void PinTable::for_each_unpinned(const Region& region, PageRange pages, Visit visit) {
  const Hold hold(*this);
  const size_t end = pages.first + pages.count;
  for (size_t granule = pages.first / kGranulePages; granule * kGranulePages < end; ++granule) {
    const size_t base = granule * kGranulePages;
    unsigned pinned = 0;
    for (uint32_t id = region.granule_pins[granule]; id != 0; id = records_[id].next)
      if (id <= PinSlots::kMaxSlots) pinned |= records_[id].page_mask;
    const size_t from = std::max(pages.first, base);
    const size_t to = std::min(end, base + kGranulePages);
    for (size_t page = from; page < to;) {
      size_t stop = page;
      while (stop < to && (pinned >> (stop - base) & 1U) == 0) ++stop;
      if (stop != page) visit(PageRange{page, stop - page});
      page = stop + 1;
    }
  }
}

}  // namespace faultline::odp
