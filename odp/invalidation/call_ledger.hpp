// SPDX-License-Identifier: BSD-3-Clause
// The program's in-progress calls that remove memory. No page in their ranges becomes resident before they
// end, and events that arrive meanwhile are recorded until then. Without locks, since a signal handler may
// make such a call in the middle of another one. All zero bytes are an empty ledger.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "odp/regions/address_range.hpp"
#include "odp/regions/page_map.hpp"

namespace faultline::odp {

/// Result of a call of the program.
enum class CallEnd : uint8_t {
  done,
  stays,  ///< the mapping still exists, whatever the kernel's events report (MREMAP_DONTUNMAP)
  failed  ///< perhaps half-way: mmap(2) and mremap(2) may fail after they have unmapped
};

class CallLedger {
 public:
  static constexpr size_t kEntries = 64;

  class Entry {
   public:
    /// Returns the range from the first to the last address that an event has reported as unmapped.
    [[nodiscard]] AddressRange unmapped() const {
      return {~unmapped_from_.load(std::memory_order_seq_cst), unmapped_to_.load(std::memory_order_seq_cst)};
    }
    /// Records that doom or suspend has been applied to all of the range and the pins are released. Only the
    /// end of the call changes that.
    void note_marked(PageEvent mark) { mark_.store(mark, std::memory_order_seq_cst); }

   private:
    friend class CallLedger;
    enum State : uint32_t { unused, claimed, under_way, ending };

    [[nodiscard]] AddressRange range() const {
      return {start_.load(std::memory_order_acquire), end_.load(std::memory_order_acquire)};
    }

    std::atomic<uint32_t> state_;
    std::atomic<uint32_t> uses_;   ///< calls that have used this entry: a reader detects reuse by it
    std::atomic<PageEvent> mark_;  ///< begin_fault: none yet
    std::atomic<uint64_t> start_;
    std::atomic<uint64_t> end_;
    std::atomic<uint64_t> unmapped_from_;  ///< complement of the address: 0 is none
    std::atomic<uint64_t> unmapped_to_;
  };

  /// Call before the pages are marked. Returns nullptr if all entries are taken: then every range counts as
  /// in progress until the matching end().
  [[nodiscard]] Entry* begin(const AddressRange& range);
  /// Settles the doomed pages of `range` and ends the entry; call after the program's call has returned.
  /// apply(part, event) moves the doomed pages of a part (bury or revive); mark_unmapped_dead(part) moves
  /// those that are no longer mapped. Every event of the call must have been applied, unless `end` is done.
  template <typename Apply, typename BuryHoles>
  void settle(Entry* entry, const AddressRange& range, bool unmaps, CallEnd end, Apply apply,
              BuryHoles mark_unmapped_dead);

  /// True if a call has part of the range in progress or has not settled its marks.
  [[nodiscard]] bool has(const AddressRange& range) const;
  /// Calls visit(part) for each part of `range` that no other call in progress covers.
  template <typename Visit>
  void for_each_free(const AddressRange& range, Visit visit) const;
  /// True if a call in progress has marked all of the range so that `event`, a drop or kill, would change no
  /// page and no pin there.
  [[nodiscard]] bool already_marks(PageEvent event, const AddressRange& range) const;
  /// Records an event: the range was unmapped.
  void note_unmapped(const AddressRange& range);

 private:
  /// Other calls no longer leave pages to this one.
  static void begin_to_end(Entry* entry) {
    if (entry != nullptr) entry->state_.store(Entry::ending, std::memory_order_seq_cst);
  }
  void end(Entry* entry);
  [[nodiscard]] bool first_under_way(const AddressRange& range, AddressRange& found) const;

  std::atomic<uint32_t> count_;     ///< entries in use, and calls without an entry
  std::atomic<uint32_t> unlisted_;  ///< calls without an entry
  std::array<Entry, kEntries> entries_;
};

template <typename Visit>
void CallLedger::for_each_free(const AddressRange& range, Visit visit) const {
  AddressRange left = range;
  for (AddressRange other; !left.is_empty() && first_under_way(left, other); left.start = other.end)
    if (left.start < other.start) visit(AddressRange{left.start, other.start});
  if (!left.is_empty()) visit(left);
}

template <typename Apply, typename BuryHoles>
void CallLedger::settle(Entry* entry, const AddressRange& range, bool unmaps, CallEnd end_of_call,
                        Apply apply, BuryHoles mark_unmapped_dead) {
  if (unmaps && end_of_call == CallEnd::done) {
    apply(range, PageEvent::bury);
    return end(entry);
  }
  if (end_of_call != CallEnd::stays && entry != nullptr) {
    // Unmapped by this call before it failed, or by another call that no hook has seen.
    const AddressRange gone = entry->unmapped();
    if (!gone.is_empty()) apply(gone, PageEvent::bury);
  }
  if (end_of_call == CallEnd::failed) mark_unmapped_dead(range);
  begin_to_end(entry);
  for_each_free(range, [&](const AddressRange& part) { apply(part, PageEvent::revive); });
  end(entry);
}

}  // namespace faultline::odp
