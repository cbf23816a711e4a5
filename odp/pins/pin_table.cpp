// SPDX-License-Identifier: BSD-3-Clause
#include "odp/pins/pin_table.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <span>

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stack/base/process/signals_blocked.hpp"

namespace faultline::odp {
namespace {

bool has_ipc_lock() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  return (data[0].effective & (1U << CAP_IPC_LOCK)) != 0;
}

constexpr uint16_t mask_of(unsigned first, unsigned count) {
  return static_cast<uint16_t>(((1U << count) - 1U) << first);
}

}  // namespace

uint64_t lock_limit_bytes() {
  rlimit limit{};
  if (has_ipc_lock() || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return UINT64_MAX;
  return limit.rlim_cur;
}

uint64_t effective_pin_budget(uint64_t wanted_bytes) {
  const uint64_t limit_bytes = lock_limit_bytes();
  if (limit_bytes == UINT64_MAX) return wanted_bytes;
  return std::min(wanted_bytes, limit_bytes / 4 * 3);
}

void PinTable::account(uint64_t bytes, bool add, bool pinned) {
  Cell& cell = pinned ? counters_.pinned_bytes : counters_.unpinned_bytes;
  if (add) {
    held_bytes_ += bytes;
    cell.add(bytes);
  } else {
    held_bytes_ -= bytes;
    cell.subtract(bytes);
  }
  tracks_use_.store(held_bytes_ > budget_bytes_ / 2, std::memory_order_relaxed);
}

uint32_t PinTable::take_unpinned() {
  if (free_unpinned_ != 0) {
    const uint32_t id = free_unpinned_;
    free_unpinned_ = records_[id].next;
    return id;
  }
  if (highest_unpinned_ == kMaxRecords - PinSlots::kMaxSlots) return 0;
  return PinSlots::kMaxSlots + ++highest_unpinned_;
}

void PinTable::pin_pages(Region& region, PageRange pages, uint64_t now_ns, uint64_t protect_since_ns,
                         Victims* victims) {
  const Hold hold(*this);
  if (!pin_missing(region, pages, {now_ns, protect_since_ns, victims, false})) counters_.pin_fallbacks.add();
}

bool PinTable::pin_absent_pages(Region& region, PageRange pages, uint64_t now_ns, uint64_t protect_since_ns,
                                Victims* victims) {
  const Hold hold(*this);
  return pin_missing(region, pages, {now_ns, protect_since_ns, victims, true});
}

void PinTable::pin_later(Region& region, PageRange pages, uint64_t now_ns) {
  const Hold hold(*this);
  const size_t end = pages.first + pages.count;
  for (size_t granule = pages.first / kGranulePages; granule * kGranulePages < end; ++granule) {
    const size_t base = granule * kGranulePages;
    const auto from = static_cast<unsigned>(std::max(pages.first, base) - base);
    const auto to = static_cast<unsigned>(std::min(end, base + kGranulePages) - base);
    unsigned missing = mask_of(from, to - from);
    for (uint32_t id = region.granule_pins[granule]; id != 0; id = records_[id].next)
      missing &= ~unsigned{records_[id].page_mask};
    const uint64_t bytes = static_cast<uint64_t>(std::popcount(missing)) * kPageBytes;
    if (missing == 0 || held_bytes_ + bytes > budget_bytes_) continue;
    uint32_t id = waiting_record_of(region, granule);
    if (id == 0) {
      if (waiting_count_ == kMostWaiting) pin_oldest_waiting();
      id = take_unpinned();
      if (id == 0) return;
      records_[id] = {&region, now_ns, static_cast<uint32_t>(granule), region.granule_pins[granule], 0, true};
      region.granule_pins[granule] = id;
      ++region.pin_records;
      waiting_[waiting_count_++] = {&region, granule, now_ns};
    }
    records_[id].page_mask = static_cast<uint16_t>(records_[id].page_mask | missing);
    records_[id].pinned_at_ns = now_ns;
    account(bytes, true, false);
  }
}

uint32_t PinTable::waiting_record_of(const Region& region, size_t granule) const {
  uint32_t id = region.granule_pins[granule];
  while (id != 0 && !records_[id].waits) id = records_[id].next;
  return id;
}

void PinTable::pin_waiting(uint64_t before_ns) {
  const Hold hold(*this);
  while (waiting_count_ != 0 && waiting_[0].since_ns < before_ns) pin_oldest_waiting();
}

/// Pins the oldest waiting granule. An invalidation of pages that are being pinned waits for the mutex and
/// then releases their pin.
void PinTable::pin_oldest_waiting() {
  const Waiting oldest = waiting_[0];
  std::copy(waiting_.begin() + 1, waiting_.begin() + static_cast<long>(waiting_count_), waiting_.begin());
  --waiting_count_;
  const uint32_t id = waiting_record_of(*oldest.region, oldest.granule);
  if (id == 0) return;  // evicted or invalidated
  const Record record = records_[id];
  drop_record(id);
  bool all = true;
  for (unsigned left = record.page_mask; left != 0;) {
    const auto first = static_cast<unsigned>(std::countr_zero(left));
    const auto count = static_cast<unsigned>(std::countr_one(left >> first));
    left &= ~unsigned{mask_of(first, count)};
    all &= pin_run(*oldest.region, oldest.granule, first, count,
                   {record.pinned_at_ns, record.pinned_at_ns, nullptr, false});
  }
  if (!all) counters_.pin_fallbacks.add();
}

void PinTable::forget_waiting(const Region& region) {
  const auto end = waiting_.begin() + static_cast<long>(waiting_count_);
  const auto kept =
      std::remove_if(waiting_.begin(), end, [&](const Waiting& one) { return one.region == &region; });
  waiting_count_ = static_cast<size_t>(kept - waiting_.begin());
}

bool PinTable::pin_missing(Region& region, PageRange pages, const Purpose& purpose) {
  bool all = true;
  const size_t end = pages.first + pages.count;
  for (size_t granule = pages.first / kGranulePages; granule * kGranulePages < end; ++granule) {
    const size_t base = granule * kGranulePages;
    const auto from = static_cast<unsigned>(std::max(pages.first, base) - base);
    const auto to = static_cast<unsigned>(std::min(end, base + kGranulePages) - base);
    const unsigned wanted = mask_of(from, to - from);
    unsigned missing = wanted;
    for (uint32_t id = region.granule_pins[granule]; id != 0; id = records_[id].next)
      missing &= ~unsigned{records_[id].page_mask};
    // An earlier pin may hold a previous page, and does not show what is mapped now.
    if (purpose.of_absent && missing != wanted) return false;
    while (missing != 0) {
      const auto first = static_cast<unsigned>(std::countr_zero(missing));
      const auto count = static_cast<unsigned>(std::countr_one(missing >> first));
      missing &= ~unsigned{mask_of(first, count)};
      all &= pin_run(region, granule, first, count, purpose);
    }
  }
  return all;
}

bool PinTable::pin_run(Region& region, size_t granule, unsigned first, unsigned count,
                       const Purpose& purpose) {
  const uint64_t bytes = count * kPageBytes;
  if (!make_room(bytes, purpose.protect_since_ns, purpose.victims)) return false;
  const uint64_t address = region.start_page_address() + (granule * kGranulePages + first) * kPageBytes;
  uint32_t slot = 0;
  // A pin may fault, and would wait for the program's handler with our mutex held.
  const bool may_wait = region.is_paged_by_program.load(std::memory_order_relaxed);
  const int error = may_wait ? EFAULT : slots_.pin(address, bytes, slot);
  const uint32_t id = error == 0 ? slot + 1 : error == EFAULT && !purpose.of_absent ? take_unpinned() : 0;
  if (id == 0) return false;
  if (error == 0)
    highest_ = std::max(highest_, id);
  else
    region.has_unpinnable.store(true, std::memory_order_relaxed);
  records_[id] = {&region,
                  purpose.now_ns,
                  static_cast<uint32_t>(granule),
                  region.granule_pins[granule],
                  mask_of(first, count),
                  false};
  region.granule_pins[granule] = id;
  ++region.pin_records;
  account(bytes, true, error == 0);
  return error == 0;
}

bool PinTable::make_room(uint64_t bytes, uint64_t protect_since_ns, Victims* victims) {
  if (bytes > budget_bytes_) return false;
  while (held_bytes_ + bytes > budget_bytes_) {
    if (!evict_one(protect_since_ns, victims)) return false;
  }
  return true;
}

bool PinTable::evict_one(uint64_t protect_since_ns, Victims* victims) {
  // Two rounds: the first may only clear second chances.
  for (uint64_t steps = 0; steps < uint64_t{2} * (highest_ + highest_unpinned_); ++steps) {
    if (hand_ >= highest_ && hand_ < PinSlots::kMaxSlots) hand_ = PinSlots::kMaxSlots;
    hand_ = hand_ == PinSlots::kMaxSlots + highest_unpinned_ ? 1 : hand_ + 1;
    Record& record = records_[hand_];
    if (record.page_mask == 0 || record.pinned_at_ns >= protect_since_ns) continue;
    Region& region = *record.region;
    if (region.granule_used[record.granule].exchange(0, std::memory_order_relaxed) != 0) continue;
    drop_pages(record);
    counters_.pin_evictions.add();
    // An engine in a turn may still copy through these pages. No wait is needed: it copies through the
    // program's own mapping, which an unpin leaves unchanged.
    if (victims != nullptr && victims->count < victims->ranges.size()) {
      const auto first = static_cast<unsigned>(std::countr_zero(record.page_mask));
      victims->ranges[victims->count++] = {
          region.start_page_address() + (record.granule * kGranulePages + first) * kPageBytes,
          static_cast<uint64_t>(std::popcount(record.page_mask)) * kPageBytes};
    }
    drop_record(hand_);
    return true;
  }
  return false;
}

void PinTable::drop_pages(const Record& record) {
  Region& region = *record.region;
  size_t dropped = 0;
  for (unsigned bit = 0; bit < kGranulePages; ++bit) {
    if ((record.page_mask >> bit & 1U) != 0)
      dropped += region.pages.apply_range(record.granule * kGranulePages + bit, 1, PageEvent::drop);
  }
  region.resident_pages.fetch_sub(dropped, std::memory_order_relaxed);
  counters_.num_odp_mr_pages.subtract(dropped);
}

void PinTable::expire_unpinned(uint64_t before_ns) {
  const Hold hold(*this);
  for (uint32_t id = PinSlots::kMaxSlots + 1; id <= PinSlots::kMaxSlots + highest_unpinned_; ++id) {
    const Record& record = records_[id];
    if (record.page_mask == 0 || record.waits || record.pinned_at_ns >= before_ns) continue;
    drop_pages(record);
    drop_record(id);
  }
}

void PinTable::reserve_whole(Region& region) {
  const uint64_t bytes = region.end_page_address() - region.start_page_address();
  region.whole_pins.reserve(bytes / PinSlots::kMaxBytes + 1);
}

int PinTable::pin_whole(Region& region) {
  constexpr uint64_t kProtectNone = UINT64_MAX;
  const uint64_t start = region.start_page_address();
  const uint64_t end = region.end_page_address();
  const Hold hold(*this);
  // Checked first: nothing is evicted for a region that does not fit anyway. A pin in memory that the
  // program pages might wait for the program.
  int error = region.is_paged_by_program.load(std::memory_order_relaxed) ? EOPNOTSUPP : 0;
  if (error == 0 &&
      (whole_bytes_ + (end - start) > budget_bytes_ || !make_room(end - start, kProtectNone, nullptr)))
    error = ENOMEM;
  for (uint64_t address = start; error == 0 && address < end; address += PinSlots::kMaxBytes) {
    const uint64_t bytes = std::min(PinSlots::kMaxBytes, end - address);
    uint32_t slot = 0;
    error = slots_.pin(address, bytes, slot);
    if (error != 0) break;
    region.whole_pins.push_back(slot);
    region.whole_pinned_bytes += bytes;
    whole_bytes_ += bytes;
    account(bytes, true, true);
  }
  if (error != 0) counters_.pin_fallbacks.add();
  return error;
}

bool PinTable::release(uint32_t slot, uint64_t bytes) {
  const int error = slots_.unpin(slot);
  if (error == 0) {
    account(bytes, false, true);
    return true;
  }
  counters_.stuck_pin_bytes.add(bytes);
  if (!release_failed_) release_error_.store(error, std::memory_order_relaxed);
  release_failed_ = true;
  return false;
}

void PinTable::drop_record(uint32_t id) {
  Record& record = records_[id];
  uint32_t* link = &record.region->granule_pins[record.granule];
  while (*link != id) link = &records_[*link].next;
  *link = record.next;
  --record.region->pin_records;
  const uint64_t bytes = static_cast<uint64_t>(std::popcount(record.page_mask)) * kPageBytes;
  record.page_mask = 0;
  record.waits = false;
  if (id <= PinSlots::kMaxSlots) {
    // If the pin stays, the pages become absent all the same: nothing refers to its slot any more.
    release(id - 1, bytes);
    return;
  }
  account(bytes, false, false);
  record.next = free_unpinned_;
  free_unpinned_ = id;
}

void PinTable::unpin_pages(Region& region, PageRange pages) {
  if (!region.on_demand) return;
  if (holder_.load(std::memory_order_relaxed) == thread_pointer()) {
    // This is a signal handler: waiting for the mutex would never end.
    if (left_count_ == left_.size()) {
      // The last entry then covers everything: more is released than necessary.
      left_.back() = {nullptr, {}};
      return;
    }
    left_[left_count_] = {&region, pages};
    std::atomic_signal_fence(std::memory_order_seq_cst);
    ++left_count_;
    return;
  }
  const Hold hold(*this);
  drop_records_in(region, pages);
}

void PinTable::drop_left() {
  const SignalsBlocked blocked;
  for (const LeftRange& left : std::span(left_).first(left_count_)) {
    if (left.region != nullptr) {
      drop_records_in(*left.region, left.pages);
      continue;
    }
    const auto drop_all_in = [&](uint32_t first, uint32_t stop) {
      for (uint32_t id = first; id < stop; ++id)
        if (records_[id].page_mask != 0) drop_record(id);
    };
    drop_all_in(1, highest_ + 1);
    drop_all_in(PinSlots::kMaxSlots + 1, PinSlots::kMaxSlots + highest_unpinned_ + 1);
  }
  left_count_ = 0;
}

void PinTable::drop_records_in(Region& region, PageRange pages) {
  if (region.pin_records == 0 || pages.count == 0) return;
  const size_t end = pages.first + pages.count;
  const auto drop_if_met = [&](uint32_t id) {
    const Record& record = records_[id];
    const size_t base = size_t{record.granule} * kGranulePages;
    if (base >= end || base + kGranulePages <= pages.first) return;
    const auto from = static_cast<unsigned>(std::max(pages.first, base) - base);
    const auto to = static_cast<unsigned>(std::min(end, base + kGranulePages) - base);
    if ((record.page_mask & mask_of(from, to - from)) != 0) drop_record(id);
  };
  const size_t last_granule = (end - 1) / kGranulePages;
  const size_t first_granule = pages.first / kGranulePages;
  if (last_granule - first_granule < highest_ + highest_unpinned_) {
    for (size_t granule = first_granule; granule <= last_granule; ++granule) {
      for (uint32_t id = region.granule_pins[granule]; id != 0;) {
        const uint32_t next = records_[id].next;
        drop_if_met(id);
        id = next;
      }
    }
    return;
  }
  // The shorter walk: regions of many GiB have more granules than there are records, few of which belong to
  // this region.
  const auto drop_between = [&](uint32_t first, uint32_t stop) {
    for (uint32_t id = first; id < stop && region.pin_records != 0; ++id)
      if (records_[id].page_mask != 0 && records_[id].region == &region) drop_if_met(id);
  };
  drop_between(1, highest_ + 1);
  drop_between(PinSlots::kMaxSlots + 1, PinSlots::kMaxSlots + highest_unpinned_ + 1);
}

void PinTable::unpin_all(Region& region) {
  const Hold hold(*this);
  forget_waiting(region);
  if (region.on_demand) return drop_records_in(region, {0, region.page_count()});
  for (const uint32_t slot : region.whole_pins) {
    const uint64_t bytes = std::min(PinSlots::kMaxBytes, region.whole_pinned_bytes);
    region.whole_pinned_bytes -= bytes;
    if (release(slot, bytes)) whole_bytes_ -= bytes;
  }
  region.whole_pins.clear();
}

}  // namespace faultline::odp
