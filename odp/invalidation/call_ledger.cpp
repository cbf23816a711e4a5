// SPDX-License-Identifier: BSD-3-Clause
#include "odp/invalidation/call_ledger.hpp"

namespace faultline::odp {

CallLedger::Entry* CallLedger::begin(const AddressRange& range) {
  count_.fetch_add(1, std::memory_order_seq_cst);
  for (Entry& entry : entries_) {
    uint32_t expected = Entry::unused;
    if (!entry.state_.compare_exchange_strong(expected, Entry::claimed, std::memory_order_seq_cst)) continue;
    // Precedes the fields, for already_marks().
    entry.uses_.fetch_add(1, std::memory_order_seq_cst);
    entry.mark_.store(PageEvent::begin_fault, std::memory_order_release);
    entry.start_.store(range.start, std::memory_order_release);
    entry.end_.store(range.end, std::memory_order_release);
    entry.unmapped_from_.store(0, std::memory_order_relaxed);
    entry.unmapped_to_.store(0, std::memory_order_relaxed);
    entry.state_.store(Entry::under_way, std::memory_order_seq_cst);
    return &entry;
  }
  unlisted_.fetch_add(1, std::memory_order_seq_cst);
  return nullptr;
}

void CallLedger::end(Entry* entry) {
  if (entry == nullptr)
    unlisted_.fetch_sub(1, std::memory_order_seq_cst);
  else
    entry->state_.store(Entry::unused, std::memory_order_seq_cst);
  count_.fetch_sub(1, std::memory_order_seq_cst);
}

bool CallLedger::has(const AddressRange& range) const {
  if (count_.load(std::memory_order_seq_cst) == 0) return false;
  if (unlisted_.load(std::memory_order_seq_cst) != 0) return true;
  for (const Entry& entry : entries_) {
    const uint32_t state = entry.state_.load(std::memory_order_seq_cst);
    if ((state == Entry::under_way || state == Entry::ending) && entry.range().overlaps(range)) return true;
  }
  return false;
}

bool CallLedger::already_marks(PageEvent event, const AddressRange& range) const {
  if (count_.load(std::memory_order_seq_cst) == 0) return false;
  for (const Entry& entry : entries_) {
    const uint32_t uses = entry.uses_.load(std::memory_order_seq_cst);
    if (entry.state_.load(std::memory_order_seq_cst) != Entry::under_way) continue;
    const PageEvent mark = entry.mark_.load(std::memory_order_acquire);
    const AddressRange marked = entry.range();
    // suspend leaves the pages of classic regions unchanged: a later kill must still reach those.
    if (mark != PageEvent::doom && !(mark == PageEvent::suspend && event == PageEvent::drop)) continue;
    if (range.start < marked.start || range.end > marked.end) continue;
    // If the entry was reused meanwhile, the fields belong to two calls and are meaningless.
    if (entry.uses_.load(std::memory_order_seq_cst) == uses) return true;
  }
  return false;
}

bool CallLedger::first_under_way(const AddressRange& range, AddressRange& found) const {
  bool any = false;
  for (const Entry& entry : entries_) {
    if (entry.state_.load(std::memory_order_seq_cst) != Entry::under_way) continue;
    const AddressRange other = entry.range();
    if (!other.overlaps(range) || (any && other.start >= found.start)) continue;
    found = other;
    any = true;
  }
  return any;
}

void CallLedger::note_unmapped(const AddressRange& range) {
  if (count_.load(std::memory_order_seq_cst) == 0) return;
  const auto raise = [](std::atomic<uint64_t>& to, uint64_t value) {
    uint64_t before = to.load(std::memory_order_relaxed);
    while (before < value && !to.compare_exchange_weak(before, value, std::memory_order_seq_cst)) {
    }
  };
  for (Entry& entry : entries_) {
    if (entry.state_.load(std::memory_order_seq_cst) == Entry::unused || !entry.range().overlaps(range))
      continue;
    raise(entry.unmapped_from_, ~range.start);
    raise(entry.unmapped_to_, range.end);
  }
}

}  // namespace faultline::odp
