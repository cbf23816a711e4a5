// SPDX-License-Identifier: BSD-3-Clause
#include "odp/regions/child_table.hpp"

#include <new>

namespace faultline::odp {

Region::Region() = default;
Region::~Region() = default;

Child::Child(const Region& parent, uint64_t address) {
  region.key = parent.key;
  region.domain = parent.domain;
  region.access = parent.access;
  region.on_demand = true;
  region.address = address;
  region.length_bytes = kChildBytes;
  region.iova = address;
  region.first_page = address >> kPageShift;
  region.parent_children = parent.children.get();
  region.counters = parent.counters;
  region.pages.borrow(states);
  region.granule_pins.borrow(granule_pins);
  region.granule_used.borrow(granule_used);
}

Child& ChildPool::take(const Region& parent, uint64_t address) {
  uint32_t number = free_;
  if (number != 0) {
    free_ = *std::launder(reinterpret_cast<uint32_t*>(&places_[number - 1]));
  } else {
    number = highest_.load(std::memory_order_relaxed) + 1;
  }
  Child* const child = new (&places_[number - 1]) Child(parent, address);
  if (number > highest_.load(std::memory_order_relaxed)) highest_.store(number, std::memory_order_release);
  count_.fetch_add(1, std::memory_order_relaxed);
  return *child;
}

void ChildPool::give_back(Child& child) {
  const uint32_t number = number_of(child);
  std::destroy_at(&child);
  new (&places_[number - 1]) uint32_t{free_};
  free_ = number;
  count_.fetch_sub(1, std::memory_order_relaxed);
}

Child* ChildPool::next_clock_candidate() {
  const uint32_t highest = highest_.load(std::memory_order_relaxed);
  for (uint32_t steps = 0; steps < highest; ++steps) {
    hand_ = hand_ >= highest ? 1 : hand_ + 1;
    if (live_[hand_ - 1].load(std::memory_order_relaxed) != 0) return &at(hand_);
  }
  return nullptr;
}

void ChildTable::link(Child& child) {
  const std::lock_guard lock(pool_.mutex());
  pool_.set_live(child, true);
  numbers_[child.region.address >> kChildShift].store(pool_.number_of(child), std::memory_order_release);
}

void ChildTable::unlink(Child& child) {
  const std::lock_guard lock(pool_.mutex());
  numbers_[child.region.address >> kChildShift].store(0, std::memory_order_seq_cst);
  pool_.set_live(child, false);
}

}  // namespace faultline::odp
