// SPDX-License-Identifier: BSD-3-Clause
// Short faults on the engine's own thread. To wake a thread and to come back from it takes longer than to
// make a page of fresh memory resident.
#include <algorithm>
#include <mutex>

#include "odp/copy/tolerant_atomic.hpp"
#include "odp/pager/pager.hpp"

namespace faultline::odp {
namespace {

/// A packet's, wherever it begins.
constexpr uint64_t kShortPages = 2;
/// A page of fresh memory takes 3 us. What takes so much longer waited for somebody: for the lock of the
/// address space, which another call of the program's holds, or for pages to be reclaimed; an engine has
/// other QPs to serve. Or its thread was preempted, which tells nothing.
constexpr uint64_t kTooLongNs = 100'000;
/// Then the threads have the faults for so many times as long, and for twice as long each time that the next
/// one here was too long again.
constexpr uint64_t kLeaveAloneFactor = 4;
constexpr unsigned kMostDoublings = 8;

}  // namespace

bool Pager::serve_at_once(const FaultRequest& request, Outcome& outcome) {
  if (request.length_bytes == 0 || request.length_bytes > kShortPages * kPageBytes || request.no_fault)
    return false;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  const uint64_t start_ns = monotonic_ns();
  // What was evicted may have to be paged out, which takes its time.
  if (start_ns < at_once_again_ns_ || victims_.count != 0 || stopping_.load(std::memory_order_acquire) ||
      parts_.quiescence.gate_is_up() || parts_.monitor.is_handling() || AddressSpaceCall::any_in_progress())
    return false;
  Service service;
  service.request = request;
  service.started_at_ns = start_ns;
  service.at_once = true;
  const bool none_expires = parts_.counters.unpinned_bytes.get() == 0;
  const Step step = serve_short(request, service);
  const uint64_t service_ns = monotonic_ns() - start_ns;
  if (service_ns > kTooLongNs) {
    at_once_again_ns_ = start_ns + (service_ns * kLeaveAloneFactor << long_in_a_row_);
    long_in_a_row_ = std::min(long_in_a_row_ + 1, kMostDoublings);
  } else {
    long_in_a_row_ = 0;
  }
  lock.unlock();
  // It sleeps without a deadline where nothing waits for its pin or its end.
  if (none_expires && parts_.counters.unpinned_bytes.get() != 0) wake();
  if (step != Step::done && step != Step::failed) return false;
  outcome = step == Step::done ? Outcome::done : Outcome::violation;
  CounterCells& counters = parts_.counters;
  if (step == Step::failed) counters.num_failed_resolutions.add();
  if (step == Step::done && service.pages_made_resident == 0) {
    counters.faults_coalesced.add();
    return true;
  }
  counters.num_page_faults.add();
  counters.num_page_fault_pages.add(service.pages_made_resident);
  counters.faults_served_at_once.add();
  counters.note_service(service.kind, service_ns);
  return true;
}

Pager::Step Pager::serve_short(const FaultRequest& request, Service& service) {
  const ReaderStripes::Guard guard(parts_.readers);
  Region* region = parts_.keys.find(request.target.key);
  if (region == nullptr || !region->on_demand ||
      !grants(*region, request.target, request.va, request.length_bytes))
    return Step::more;
  PageRange pages = pages_of(*region, request.va, request.length_bytes);
  if (region->children != nullptr) {
    const uint64_t address = pages.first << kPageShift;
    region = region->children->find(address);
    if (region == nullptr || pages.first - region->first_page + pages.count > kChildPages) return Step::more;
    pages.first -= region->first_page;
  }
  if (pages.count > kShortPages || region->watch_at_fault ||
      region->is_paged_by_program.load(std::memory_order_relaxed))
    return Step::more;
  const bool write = (request.target.need & kWriteRights) != 0;
  Plan& plan = service.plan;
  if (const Step step = plan_chunk(*region, pages, write, plan); step != Step::done) return step;
  if (plan.length_bytes == 0) return Step::done;
  plan.chunk_pages = pages.count;
  for (size_t i = 0; i < service_count_; ++i) {
    const Service& other = services_[in_use_[i]];
    if (other.away && other.plan.overlaps(plan)) return Step::more;
  }
  const bool stays = swap_space_.is_absent(service.started_at_ns);
  const Survey survey = stays ? surveyor_.look_without_swap(plan.address, plan.pages.count, write)
                              : surveyor_.look(plan.address, plan.pages.count, write);
  const bool is_computed = survey.kind == FaultKind::swap && swap_space_.is_in_memory(service.started_at_ns);
  if ((survey.is_slow && !is_computed) || survey.of_file) return Step::more;
  plan.kind = survey.kind;
  plan.begun = begin_faults(*region, plan.pages, write);
  const bool may_touch = stays && write && survey.backing == Backing::anonymous;
  if (!(may_touch && populate_by_touch(*region, plan)) && !populate_by_pin(*region, plan)) populate(plan);
  const PageRange planned = plan.pages;
  const bool failed = plan.error != 0;
  const Step step = publish(*region, service, false);
  // Of two pages the second may be a hole.
  if (failed) parts_.pins.unpin_pages(*region, planned);
  return step;
}

/// The fault itself costs less than any call that has the kernel cause it. What is touched lately, on a
/// machine without swap, the kernel takes from nobody: its pin can wait until there are several. False where
/// it cannot be written to.
bool Pager::populate_by_touch(Region& region, Plan& plan) {
  const uint64_t start_ns = monotonic_ns();
  uint64_t original = 0;
  for (size_t i = 0; i < plan.pages.count; ++i) {
    auto* const page = reinterpret_cast<void*>(plan.address + i * kPageBytes);
    // Atomic: threads of the program may be writing there.
    if (!tolerant_atomic(page, {.op = AtomicOp::fetch_add, .compare = 0, .operand = 0}, original))
      return false;
  }
  note_if_huge(plan, monotonic_ns() - start_ns);
  parts_.pins.pin_later(region, plan.pages, start_ns);
  return true;
}

/// To pin a page is to make it resident first: of two system calls one is left. False where that did not do;
/// why not, populate() tells.
bool Pager::populate_by_pin(Region& region, Plan& plan) {
  const uint64_t start_ns = monotonic_ns();
  if (!parts_.pins.pin_absent_pages(region, plan.pages, start_ns, protect_since_ns(start_ns), &victims_))
    return false;
  note_if_huge(plan, monotonic_ns() - start_ns);
  return true;
}

}  // namespace faultline::odp
