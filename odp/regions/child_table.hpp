// SPDX-License-Identifier: BSD-3-Clause
// The children of implicit regions (address 0, the whole address space): pieces of 2 MiB. A child is created
// at the first request for one of its pages. It is reclaimed when it has no page left, or when another child
// needs its place.
//
// An engine finds a child with one load, without locks. A domain has a fixed number of places, which bounds
// the memory of a region whose accesses wander through the address space.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "odp/regions/region.hpp"
#include "stack/base/lazy_array.hpp"
#include "stack/base/pi_mutex.hpp"

namespace faultline::odp {

inline constexpr unsigned kChildShift = 21;
inline constexpr uint64_t kChildBytes = uint64_t{1} << kChildShift;
inline constexpr size_t kChildPages = kChildBytes / kPageBytes;
/// End of a process's addresses, with four levels of page tables; mmap(2) returns no higher address without a
/// hint. On x86-64 half of them are the kernel's.
#if defined(__x86_64__)
inline constexpr uint64_t kAddressSpaceBytes = uint64_t{1} << 47;
#else
inline constexpr uint64_t kAddressSpaceBytes = uint64_t{1} << 48;
#endif

/// A region in all but its key: a child is reached through its parent's key.
struct Child {
  explicit Child(const Region& parent, uint64_t address);

  Region region;
  /// The range that is watched for the child: the whole mapping that held its first page. A watch on part of
  /// a mapping splits it, and the kernel refuses to move or grow several mappings at once (mremap(2),
  /// EFAULT).
  uint64_t watch_start = 0;
  uint64_t watch_end = 0;
  std::array<std::atomic<PageState>, kChildPages> states{};
  std::array<uint32_t, kChildPages / kGranulePages> granule_pins{};
  std::array<std::atomic<uint8_t>, kChildPages / kGranulePages> granule_used{};
};

/// The places of a domain's children. Only the pager takes and returns places.
class ChildPool {
 public:
  explicit ChildPool(uint32_t capacity) : capacity_(capacity) {}
  [[nodiscard]] bool allocate() { return places_.allocate(capacity_) && live_.allocate(capacity_); }

  [[nodiscard]] uint32_t capacity() const { return capacity_; }
  [[nodiscard]] uint32_t count() const { return count_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool is_full() const { return count() == capacity_; }
  /// True if engines must record use, because the CLOCK may soon need it.
  [[nodiscard]] bool tracks_use() const { return count() > capacity_ / 2; }
  /// Set when a child may have lost its last page; the pager then sweeps when it has time.
  [[nodiscard]] std::atomic<bool>& sweep_wanted() { return sweep_wanted_; }
  /// Held for visits, link and unlink. One mutex serves all tables, since a place may move between tables.
  [[nodiscard]] PiMutex& mutex() { return mutex_; }

  /// Requires !is_full().
  [[nodiscard]] Child& take(const Region& parent, uint64_t address);
  /// Requires that no thread can hold the child any more.
  void give_back(Child& child);

  [[nodiscard]] uint32_t number_of(const Child& child) const {
    return static_cast<uint32_t>(reinterpret_cast<const Place*>(&child) - &places_[0]) + 1;
  }
  [[nodiscard]] Child& at(uint32_t number) {
    return *std::launder(reinterpret_cast<Child*>(&places_[number - 1]));
  }

  /// Calls visit(child) for each child that is linked to a table. Stops if visit returns false.
  template <typename Visit>
  void for_each(Visit visit) {
    for (uint32_t i = 0; i < highest_.load(std::memory_order_acquire); ++i)
      if (live_[i].load(std::memory_order_acquire) != 0 && !visit(at(i + 1))) return;
  }
  /// Returns the next place of the CLOCK, cyclically.
  [[nodiscard]] Child* next_clock_candidate();

  void set_live(Child& child, bool live) {
    live_[number_of(child) - 1].store(live ? 1 : 0, std::memory_order_release);
  }

 private:
  struct alignas(Child) Place {
    std::array<std::byte, sizeof(Child)> bytes;
  };

  const uint32_t capacity_;
  LazyArray<Place> places_;
  LazyArray<std::atomic<uint8_t>> live_;
  std::atomic<uint32_t> count_{0};
  std::atomic<uint32_t> highest_{0};
  uint32_t free_ = 0;  ///< number of the first free place below highest_; each holds the next one's number
  uint32_t hand_ = 0;
  std::atomic<bool> sweep_wanted_{false};
  PiMutex mutex_;
};

/// One implicit region's children by address.
class ChildTable {
 public:
  explicit ChildTable(ChildPool& pool) : pool_(pool) {}
  [[nodiscard]] bool allocate() { return numbers_.allocate(kAddressSpaceBytes >> kChildShift); }

  /// Returns nullptr if there is no child yet. The caller is a reader: an engine in its turn, or a thread
  /// under a Guard.
  [[nodiscard]] Region* find(uint64_t address) const {
    if (address >= kAddressSpaceBytes) return nullptr;
    const uint32_t number = numbers_[address >> kChildShift].load(std::memory_order_acquire);
    return number == 0 ? nullptr : &pool_.at(number).region;
  }

  void link(Child& child);
  /// After it returns no visitor holds the child; readers may hold it until they have passed a quiescent
  /// state.
  void unlink(Child& child);

  /// Calls visit(region, pages) for each child that overlaps [start, end).
  template <typename Visit>
  void for_each_in(uint64_t start, uint64_t end, Visit visit) {
    const std::lock_guard lock(pool_.mutex());
    end = std::min(end, kAddressSpaceBytes);
    if (start >= end) return;
    const auto visit_part = [&](Region& region) {
      const uint64_t from = std::max(start, region.start_page_address());
      const uint64_t to = std::min(end, region.end_page_address());
      if (from >= to) return;
      visit(region,
            PageRange{(from >> kPageShift) - region.first_page, (to + kPageBytes - 1 - from) >> kPageShift});
    };
    const uint64_t first = start >> kChildShift;
    const uint64_t last = (end - 1) >> kChildShift;
    if (last - first < pool_.count()) {
      for (uint64_t slot = first; slot <= last; ++slot) {
        const uint32_t number = numbers_[slot].load(std::memory_order_acquire);
        if (number != 0) visit_part(pool_.at(number).region);
      }
      return;
    }
    pool_.for_each([&](Child& child) {
      if (child.region.parent_children == this) visit_part(child.region);
      return true;
    });
  }

 private:
  ChildPool& pool_;
  LazyArray<std::atomic<uint32_t>> numbers_;
};

}  // namespace faultline::odp
