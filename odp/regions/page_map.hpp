// SPDX-License-Identifier: BSD-3-Clause
// The state of each page of a region. The pager and the monitor change a page's state with one
// compare-and-swap by the table below; engines only read.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "stack/base/lazy_array.hpp"

namespace faultline::odp {

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr unsigned kPageShift = 12;

enum class PageState : uint8_t {
  absent,    ///< must be 0: fresh lazy memory
  faulting,  ///< the pager is serving it
  readable,
  writable,
  dead,   ///< unmapped by the program: inaccessible until it is registered again
  doomed  ///< a call that removes it is in progress: no thread touches it; the call's end decides
};
inline constexpr size_t kPageStates = 6;

enum class PageEvent : uint8_t {
  begin_fault,
  publish_read,
  publish_write,
  drop,                ///< invalidated, evicted, or the fault was given up
  make_copy_on_write,  ///< fork: a write needs a new fault
  kill,
  doom,     ///< a call that unmaps it begins
  suspend,  ///< a call that takes its contents away begins; classic regions keep theirs
  bury,     ///< applies to doomed pages only, not to a region registered here meanwhile: unmapped
  revive    ///< applies to doomed pages only: still mapped, or mapped again (implicit regions)
};
inline constexpr size_t kPageEvents = 10;

/// A publish changes nothing if the page is no longer `faulting`: an invalidation came between.
inline constexpr std::array<std::array<PageState, kPageEvents>, kPageStates> kPageTransitions{{
    // begin_fault, publish_read, publish_write, drop, make_copy_on_write, kill, doom, suspend, bury, revive
    {PageState::faulting, PageState::absent, PageState::absent, PageState::absent, PageState::absent,
     PageState::dead, PageState::doomed, PageState::doomed, PageState::absent, PageState::absent},
    {PageState::faulting, PageState::readable, PageState::writable, PageState::absent, PageState::absent,
     PageState::dead, PageState::doomed, PageState::doomed, PageState::faulting, PageState::faulting},
    {PageState::faulting, PageState::readable, PageState::readable, PageState::absent, PageState::readable,
     PageState::dead, PageState::doomed, PageState::doomed, PageState::readable, PageState::readable},
    {PageState::faulting, PageState::writable, PageState::writable, PageState::absent, PageState::readable,
     PageState::dead, PageState::doomed, PageState::doomed, PageState::writable, PageState::writable},
    {PageState::dead, PageState::dead, PageState::dead, PageState::dead, PageState::dead, PageState::dead,
     PageState::dead, PageState::dead, PageState::dead, PageState::dead},
    {PageState::doomed, PageState::doomed, PageState::doomed, PageState::doomed, PageState::doomed,
     PageState::doomed, PageState::doomed, PageState::doomed, PageState::dead, PageState::absent},
}};

[[nodiscard]] constexpr PageState next_state(PageState state, PageEvent event) {
  return kPageTransitions[static_cast<size_t>(state)][static_cast<size_t>(event)];
}
[[nodiscard]] constexpr bool is_resident(PageState state) {
  return state == PageState::readable || state == PageState::writable;
}
[[nodiscard]] constexpr bool allows(PageState state, bool write) {
  return state == PageState::writable || (!write && state == PageState::readable);
}

class PageMap {
 public:
  [[nodiscard]] bool allocate(size_t pages) { return states_.allocate(pages); }
  void borrow(std::span<std::atomic<PageState>> states) { states_.borrow(states); }
  [[nodiscard]] size_t size() const { return states_.size(); }

  [[nodiscard]] PageState state(size_t page) const { return states_[page].load(std::memory_order_acquire); }

  /// Advances after any page of any map loses its writable state. Writable pages seen after a load of this
  /// counter stay writable while it does not change.
  [[nodiscard]] static const std::atomic<uint64_t>& losses() { return losses_; }
  static void note_loss() { losses_.fetch_add(1, std::memory_order_release); }

  /// Returns the previous state.
  PageState apply(size_t page, PageEvent event) {
    const PageState before = transition(page, event);
    if (before == PageState::writable && next_state(before, event) != before) note_loss();
    return before;
  }

  struct Change {
    size_t pages = 0;  ///< whose state changed
    size_t gone = 0;   ///< of these, pages that were resident and no longer are
  };
  Change change_range(size_t first, size_t count, PageEvent event) {
    Change change;
    bool lost = false;
    const size_t end = first + count;
    for (size_t page = first; page < end;) {
      size_t moved = kWordPages;
      PageState before = PageState::absent;
      if (!is_word(page, end) || !transition_word(page, event, before)) {
        moved = 1;
        before = transition(page, event);
      }
      page += moved;
      const PageState after = next_state(before, event);
      if (before == after) continue;
      lost |= before == PageState::writable;
      change.pages += moved;
      if (is_resident(before) && !is_resident(after)) change.gone += moved;
    }
    if (lost) note_loss();
    return change;
  }
  /// Applies `event` to [first, first + count); returns how many resident pages ceased to be resident.
  size_t apply_range(size_t first, size_t count, PageEvent event) {
    return change_range(first, count, event).gone;
  }

 private:
  alignas(64) static inline std::atomic<uint64_t> losses_{0};

  PageState transition(size_t page, PageEvent event) {
    PageState before = states_[page].load(std::memory_order_acquire);
    for (;;) {
      const PageState after = next_state(before, event);
      if (after == before || states_[page].compare_exchange_weak(before, after, std::memory_order_acq_rel))
        return before;
    }
  }

  /// The monitor holds the gate up while it walks a range of any length, so pages change eight at a time if
  /// possible.
  using Word [[gnu::may_alias]] = uint64_t;
  static constexpr size_t kWordPages = sizeof(Word);
  static_assert(sizeof(std::atomic<PageState>) == 1);

  [[nodiscard]] bool is_word(size_t page, size_t end) const {
    return end - page >= kWordPages && reinterpret_cast<uintptr_t>(&states_[page]) % sizeof(Word) == 0;
  }
  [[nodiscard]] static constexpr Word word_of(PageState state) {
    return ~Word{0} / 0xff * static_cast<uint8_t>(state);
  }
  /// Moves a whole word of pages. Returns false and changes nothing unless all are in the state `before`.
  bool transition_word(size_t page, PageEvent event, PageState& before) {
    Word* const word = reinterpret_cast<Word*>(&states_[page]);
    Word seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    before = static_cast<PageState>(seen & 0xff);
    if (seen != word_of(before)) return false;
    const PageState after = next_state(before, event);
    return after == before || __atomic_compare_exchange_n(word, &seen, word_of(after), false,
                                                          __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }

  LazyArray<std::atomic<PageState>> states_;
};

}  // namespace faultline::odp
