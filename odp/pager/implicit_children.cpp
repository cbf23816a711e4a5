// SPDX-License-Identifier: BSD-3-Clause
#include "odp/pager/implicit_children.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include <sys/mman.h>

#include "odp/mappings/mapping_list.hpp"

namespace faultline::odp {

/// NO_FAULT advice concerns only pages that are mapped: without any, no child is created.
bool ImplicitChildren::may_make(const FaultRequest& request, uint64_t address) const {
  return !request.no_fault ||
         parts_.surveyor.present_mask(address & ~(kPageBytes - 1), PageSurveyor::kMaxPages) != 0;
}

Region* ImplicitChildren::find_or_make(Region& parent, const FaultRequest& request, uint64_t address) {
  Region* const region = parent.children->find(address);
  if (region != nullptr || !may_make(request, address)) return region;
  return make(parent, address);
}

Region* ImplicitChildren::make(Region& parent, uint64_t address) {
  if (parts_.pool.is_full()) return nullptr;
  // Checks first that there is a mapping (mincore(2), ENOMEM): a peer may request any address. The page
  // itself is made resident like any other, since that may take long.
  unsigned char in_core = 0;
  if (mincore(reinterpret_cast<void*>(address), kPageBytes, &in_core) != 0) return nullptr;
  Child& child = parts_.pool.take(parent, address & ~(kChildBytes - 1));
  Region& region = child.region;
  int error = 0;
  MappingFacts facts;
  if (!parts_.surveyor.find(address, facts))
    facts = {.start = region.start_page_address(), .end = region.end_page_address()};
  child.watch_start = facts.start;
  child.watch_end = facts.end;
  try {
    error = parts_.monitor.watch(child.watch_start, child.watch_end);
  } catch (const std::bad_alloc&) {
    parts_.pool.give_back(child);
    return nullptr;
  }
  // Further mappings in the child are watched when they are requested.
  region.watch_at_fault =
      error != 0 || facts.start > region.start_page_address() || facts.end < region.end_page_address();
  region.is_paged_by_program.store(error == EBUSY, std::memory_order_relaxed);
  if (error != 0 || parts_.monitor.level() == UserfaultLevel::none) parts_.counters.unwatched_regions.add();
  parent.children->link(child);
  parts_.counters.num_implicit_children.add();
  parts_.counters.implicit_children_made.add();
  return &region;
}

bool ImplicitChildren::needs_child(const FaultService& service) const {
  const ReaderStripes::Guard guard(parts_.readers);
  const Region* const region = parts_.keys.find(service.request.target.key);
  const uint64_t address = service.request.va + service.pages_done * kPageBytes;
  return region != nullptr && region->children != nullptr && region->children->find(address) == nullptr &&
         may_make(service.request, address);
}

bool ImplicitChildren::is_in_service(const Region& region) const {
  const AddressRange whole{region.start_page_address(), region.end_page_address()};
  return parts_.scheduler.any_away([&whole](const ChunkPlan& plan) { return plan.overlaps(whole); });
}

void ImplicitChildren::reclaim(bool make_room) {
  constexpr size_t kBatch = 64;
  std::array<Child*, kBatch> batch{};
  size_t count = 0;
  ChildPool& pool = parts_.pool;
  pool.for_each([&](Child& child) {
    if (child.region.resident_pages.load(std::memory_order_relaxed) != 0 || is_in_service(child.region))
      return true;
    batch[count++] = &child;
    return count != kBatch;
  });
  if (count == kBatch) pool.sweep_wanted().store(true, std::memory_order_relaxed);
  const uint32_t wanted = std::min<uint32_t>(kBatch / 2, pool.capacity() / 4 + 1);
  // Two rounds: the first may only clear second chances.
  for (uint32_t steps = 0; make_room && count < wanted && steps < 2 * pool.capacity(); ++steps) {
    Child* const child = pool.next_clock_candidate();
    if (child == nullptr) break;
    bool used = false;
    for (std::atomic<uint8_t>& granule : child->granule_used)
      used |=
          granule.load(std::memory_order_relaxed) != 0 && granule.exchange(0, std::memory_order_relaxed) != 0;
    if (used || is_in_service(child->region) ||
        std::find(batch.begin(), batch.begin() + static_cast<long>(count), child) !=
            batch.begin() + static_cast<long>(count))
      continue;
    batch[count++] = child;
  }
  take_away(std::span(batch).first(count));
}

void ImplicitChildren::drop_all(Region& parent) {
  constexpr size_t kBatch = 64;
  for (;;) {
    std::array<Child*, kBatch> batch{};
    size_t count = 0;
    parts_.pool.for_each([&](Child& child) {
      if (child.region.parent_children == parent.children.get()) batch[count++] = &child;
      return count != kBatch;
    });
    if (count == 0) return;
    take_away(std::span(batch).first(count));
  }
}

void ImplicitChildren::take_away(std::span<Child* const> children) {
  if (children.empty()) return;
  for (Child* const child : children) const_cast<ChildTable*>(child->region.parent_children)->unlink(*child);
  parts_.quiescence.wait_for(parts_.quiescence.advance());
  parts_.readers.wait();
  for (Child* const child : children) {
    Region& region = child->region;
    parts_.pins.unpin_all(region);
    parts_.counters.num_odp_mr_pages.subtract(region.resident_pages.load(std::memory_order_relaxed));
    parts_.monitor.unwatch(child->watch_start, child->watch_end);
    parts_.pool.give_back(*child);
    parts_.counters.num_implicit_children.subtract(1);
    parts_.counters.implicit_children_reclaimed.add();
  }
}

}  // namespace faultline::odp
