// SPDX-License-Identifier: BSD-3-Clause
// A domain's reaction to calls of the program and to events of the kernel: the changes to its pages and
// pins.
#include "odp/domain.hpp"
#include "odp/mappings/holes.hpp"

namespace faultline::odp {

bool Domain::touches(uint64_t start, uint64_t end) {
  return index_.may_have({start, end});
}

bool Domain::apply(uint64_t start, uint64_t end, PageEvent asked) {
  if (asked == PageEvent::kill || asked == PageEvent::bury || asked == PageEvent::revive)
    pager_->surveyor().forget_backings();
  bool any = false;
  index_.for_each_in(start, end, [&](Region& region, PageRange pages) {
    any = true;
    change_pages(region, pages, asked);
  });
  return any;
}

void Domain::change_pages(Region& region, PageRange pages, PageEvent asked) {
  const bool is_child = region.parent_children != nullptr;
  PageEvent event = asked;
  // An implicit region is whatever is mapped: an unmapped page may be mapped again.
  if (is_child && asked == PageEvent::kill) event = PageEvent::drop;
  if (is_child && asked == PageEvent::bury) event = PageEvent::revive;
  const bool is_end = event == PageEvent::bury || event == PageEvent::revive;
  // If the program drops the contents of a classic region's pages, the kernel refills the pages on access.
  if (!region.on_demand && !is_end && event != PageEvent::kill && event != PageEvent::doom) return;
  // A fork covers all pages of a large region: if none is resident there is none to change.
  if (event == PageEvent::make_copy_on_write && region.resident_pages.load(std::memory_order_relaxed) == 0)
    return;
  if (event == PageEvent::kill || event == PageEvent::doom)
    region.has_barred_pages.store(true, std::memory_order_seq_cst);
  const PageMap::Change change = region.pages.change_range(pages.first, pages.count, event);
  // Doomed pages were counted when they became doomed.
  if (change.pages == 0 || is_end) return;
  counters_.num_invalidations.add();
  if (!region.on_demand || change.gone == 0) return;
  const uint64_t left = region.resident_pages.fetch_sub(change.gone, std::memory_order_relaxed) - change.gone;
  counters_.num_invalidation_pages.add(change.gone);
  counters_.num_odp_mr_pages.subtract(change.gone);
  region.counters->page_invalidations.add(change.gone);
  if (config_.page_losses != nullptr) config_.page_losses->on_pages_lost(change.gone);
  if (is_child && left == 0) {
    children_.sweep_wanted().store(true, std::memory_order_relaxed);
    pager_->wake();
  }
}

void Domain::mark_unmapped_dead(uint64_t start, uint64_t end) {
  index_.for_each_in(start, end, [&](Region& region, PageRange pages) {
    const uint64_t from = (region.first_page + pages.first) << kPageShift;
    const uint64_t to = from + (pages.count << kPageShift);
    for_each_hole({from, to}, [&](const AddressRange& hole) {
      change_pages(region,
                   {(hole.start >> kPageShift) - region.first_page, (hole.end - hole.start) >> kPageShift},
                   PageEvent::bury);
    });
  });
}

/// A pinned page stays the parent's and writable: the kernel copies it for the child (linux,
/// folio_needs_cow_for_dma). Other pages are shared, and the CPU's copy-on-write protects the child. But an
/// engine that triggered it would wait for as long as the kernel copies page tables.
void Domain::mark_for_fork() {
  pins_.pin_waiting(~uint64_t{0});
  index_.for_each_in(0, ~uint64_t{0}, [&](Region& region, PageRange pages) {
    if (!region.on_demand || region.resident_pages.load(std::memory_order_relaxed) == 0) return;
    pins_.for_each_unpinned(region, pages, [&](PageRange unpinned) {
      change_pages(region, unpinned, PageEvent::make_copy_on_write);
    });
  });
}

void Domain::release_pins(uint64_t start, uint64_t end) {
  index_.for_each_in(start, end,
                     [this](Region& region, PageRange pages) { pins_.unpin_pages(region, pages); });
}

void Domain::note_paged_by_program(uint64_t start, uint64_t end) {
  index_.for_each_in(start, end, [this](Region& region, PageRange) {
    if (!region.is_paged_by_program.exchange(true, std::memory_order_relaxed))
      counters_.unwatched_regions.add();
  });
}

void Domain::note_unwatched(uint64_t start, uint64_t end) {
  index_.for_each_in(start, end, [this](Region&, PageRange) { counters_.unwatched_regions.add(); });
}

}  // namespace faultline::odp
