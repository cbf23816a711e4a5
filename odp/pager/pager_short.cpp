// SPDX-License-Identifier: BSD-3-Clause
// Short faults on the engine's own thread. Waking a thread and switching back takes longer than making a
// page of fresh memory resident.
#include <algorithm>
#include <mutex>

#include "odp/copy/tolerant_atomic.hpp"
#include "odp/pager/pager.hpp"

namespace faultline::odp {
namespace {

/// Pages of a packet, at any offset.
constexpr uint64_t kShortPages = 2;
/// A page of fresh memory takes 3 us. A fault that takes this much longer waited: for mmap_lock, which
/// another call of the program holds, or for reclaim. Meanwhile the engine's other QPs stall. A preempted
/// thread also appears so, which has no significance.
constexpr uint64_t kTooLongNs = 100'000;
/// The pager threads then serve the faults for this multiple of the time that the long fault took. The
/// period doubles each time that the next fault here is also too long.
constexpr uint64_t kLeaveAloneFactor = 4;
constexpr unsigned kMostDoublings = 8;

}  // namespace

bool Pager::serve_at_once(const FaultRequest& request) {
  if (request.length_bytes == 0 || request.length_bytes > kShortPages * kPageBytes || request.no_fault)
    return false;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  const uint64_t start_ns = monotonic_ns();
  // Evicted pages may have to be paged out, which takes time.
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
  // The leader sleeps without a deadline while no unpinned page needs a pin or an expiry: wake it.
  if (none_expires && parts_.counters.unpinned_bytes.get() != 0) wake();
  // A request that fails takes the ordinary way, which counts and answers it.
  if (step != Step::done) return false;
  CounterCells& counters = parts_.counters;
  if (service.pages_made_resident == 0) {
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
  // The second of two pages may be a hole.
  if (failed) parts_.pins.unpin_pages(*region, planned);
  return step;
}

/// A fault by access costs less than any system call that makes the kernel fault. On a machine without swap
/// the kernel does not reclaim recently touched anonymous pages, so their pins can wait until there are
/// several. Returns false if a page cannot be written.
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

/// Pins the pages, which also makes them resident: one system call instead of two. Returns false on failure;
/// populate() then finds the error.
bool Pager::populate_by_pin(Region& region, Plan& plan) {
  const uint64_t start_ns = monotonic_ns();
  if (!parts_.pins.pin_absent_pages(region, plan.pages, start_ns, protect_since_ns(start_ns), &victims_))
    return false;
  note_if_huge(plan, monotonic_ns() - start_ns);
  return true;
}

}  // namespace faultline::odp
