// SPDX-License-Identifier: BSD-3-Clause
#include "odp/pager/short_faults.hpp"

#include <algorithm>

#include "odp/copy/tolerant_atomic.hpp"
#include "odp/regions/child_table.hpp"
#include "stack/base/clock.hpp"

namespace faultline::odp {

void ShortFaults::note_duration(uint64_t start_ns, uint64_t took_ns) {
  // A page of fresh memory takes 3 us. A fault that takes this much longer waited: for mmap_lock, which
  // another call of the program holds, or for reclaim. Meanwhile the engine's other QPs stall. A preempted
  // thread also appears so, which has no significance.
  constexpr uint64_t kTooLongNs = 100'000;
  // The pager threads then serve the faults for this multiple of the time that the long fault took. The
  // period doubles each time that the next fault here is also too long.
  constexpr uint64_t kLeaveAloneFactor = 4;
  constexpr unsigned kMostDoublings = 8;
  if (took_ns <= kTooLongNs) {
    long_in_a_row_ = 0;
    return;
  }
  again_at_ns_ = start_ns + (took_ns * kLeaveAloneFactor << long_in_a_row_);
  long_in_a_row_ = std::min(long_in_a_row_ + 1, kMostDoublings);
}

/// Finds the region, or the child, and its pages. Returns nullptr if the threads have to look at the request.
Region* ShortFaults::find(const FaultRequest& request, PageRange& pages) const {
  Region* region = parts_.keys.find(request.target.key);
  if (region == nullptr || !region->on_demand ||
      !grants(*region, request.target, request.va, request.length_bytes))
    return nullptr;
  pages = pages_of(*region, request.va, request.length_bytes);
  if (region->children != nullptr) {
    region = region->children->find(pages.first << kPageShift);
    if (region == nullptr || pages.first - region->first_page + pages.count > kChildPages) return nullptr;
    pages.first -= region->first_page;
  }
  const bool needs_watch =
      region->watch_at_fault || region->is_paged_by_program.load(std::memory_order_relaxed);
  return pages.count > kMostPages || needs_watch ? nullptr : region;
}

bool ShortFaults::serve(FaultService& service) {
  const ReaderStripes::Guard guard(parts_.readers);
  PageRange pages;
  Region* const region = find(service.request, pages);
  if (region == nullptr) return false;
  const bool write = (service.request.target.need & kWriteRights) != 0;
  ChunkPlan& plan = service.plan;
  switch (parts_.maker.plan_missing(*region, pages, write, plan)) {
    case PlanResult::planned:
      break;
    case PlanResult::nothing_missing:
      return true;
    case PlanResult::never:
    case PlanResult::in_call:
    case PlanResult::call_changed:
      return false;
  }
  plan.chunk_pages = pages.count;
  const AddressRange range = plan.range();
  if (parts_.scheduler.any_away([&range](const ChunkPlan& away) { return away.overlaps(range); }))
    return false;
  return make_resident(*region, service);
}

/// Executes a plan, if no step of it can take long.
bool ShortFaults::make_resident(Region& region, FaultService& service) {
  ChunkPlan& plan = service.plan;
  SwapSpace& swap_space = parts_.maker.swap_space();
  const bool stays = swap_space.is_absent(service.started_at_ns);
  const Survey survey = stays
                            ? parts_.surveyor.survey_without_swap(plan.address, plan.pages.count, plan.write)
                            : parts_.surveyor.look(plan.address, plan.pages.count, plan.write);
  const bool is_computed = survey.kind == FaultKind::swap && swap_space.is_in_memory(service.started_at_ns);
  if ((survey.is_slow && !is_computed) || survey.of_file) return false;
  plan.kind = survey.kind;
  plan.begun = parts_.maker.begin_faults(region, plan.pages, plan.write);
  const bool may_touch = stays && plan.write && survey.backing == Backing::anonymous;
  if (!(may_touch && populate_by_touch(region, plan)) && !populate_by_pin(region, plan))
    parts_.maker.populate(plan);
  const PageRange planned = plan.pages;
  const bool failed = plan.error != 0;
  const PublishResult result = parts_.maker.publish(region, service, false);
  // The second of two pages may be a hole.
  if (failed) parts_.pins.unpin_pages(region, planned);
  return result == PublishResult::published;
}

/// A fault by access costs less than any system call that makes the kernel fault. On a machine without swap
/// the kernel does not reclaim recently touched anonymous pages, so their pins can wait until there are
/// several. Returns false if a page cannot be written.
bool ShortFaults::populate_by_touch(Region& region, ChunkPlan& plan) {
  const uint64_t start_ns = monotonic_ns();
  uint64_t original = 0;
  for (size_t i = 0; i < plan.pages.count; ++i) {
    auto* const page = reinterpret_cast<void*>(plan.address + i * kPageBytes);
    // Atomic: threads of the program may be writing there.
    if (!tolerant_atomic(page, {.op = AtomicOp::fetch_add, .compare = 0, .operand = 0}, original))
      return false;
  }
  parts_.maker.note_if_huge(plan, monotonic_ns() - start_ns);
  parts_.pins.pin_later(region, plan.pages, start_ns);
  return true;
}

/// Pins the pages, which also makes them resident: one system call instead of two. Returns false on failure;
/// populate() then finds the error.
bool ShortFaults::populate_by_pin(Region& region, ChunkPlan& plan) {
  const uint64_t start_ns = monotonic_ns();
  if (!parts_.pins.pin_absent_pages(region, plan.pages, start_ns, parts_.maker.protect_since_ns(start_ns),
                                    &parts_.maker.victims()))
    return false;
  parts_.maker.note_if_huge(plan, monotonic_ns() - start_ns);
  return true;
}

}  // namespace faultline::odp
