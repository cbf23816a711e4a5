// SPDX-License-Identifier: BSD-3-Clause
// A chunk of a service: finds what is missing and what that costs, and makes it resident.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odp/invalidation/process_page.hpp"
#include "odp/pager/pager.hpp"

namespace faultline::odp {

/// Returns `more` if the chunk is to be served; then `region` is nullptr if advice finds nothing to serve in
/// it.
Pager::Step Pager::find_chunk(const Service& service, Region*& region, PageRange& chunk,
                              size_t& total_pages) {
  const FaultRequest& request = service.request;
  region = parts_.keys.find(request.target.key);
  if (region == nullptr) {
    parts_.counters.num_mrs_not_found.add();
    return Step::failed;
  }
  const uint64_t offset = request.va - region->iova;
  if (!grants(*region, request.target, request.va, 0) || offset >= region->length_bytes) return Step::failed;
  const uint64_t length_bytes = std::min(request.length_bytes, region->length_bytes - offset);
  if (length_bytes == 0) return Step::done;
  const PageRange range = pages_of(*region, request.va, length_bytes);
  total_pages = range.count;
  if (service.pages_done >= range.count) return Step::done;
  chunk = {range.first + service.pages_done, std::min<size_t>(kChunkPages, range.count - service.pages_done)};
  if (region->children == nullptr) return Step::more;
  // In an implicit region: the pages of one child.
  chunk.count = std::min(chunk.count, kChildPages - chunk.first % kChildPages);
  const uint64_t address = chunk.first << kPageShift;
  Region* const parent = region;
  region = parent->children->find(address);
  if (region == nullptr && may_make_child(request, address)) region = make_child(*parent, address);
  if (region == nullptr) return request.no_fault ? Step::more : Step::failed;
  chunk.first -= region->first_page;
  return Step::more;
}

/// A write that waits for the program's own handler (userfaultfd, write protection) must not delay a read of
/// the same page. The handler may be the reader, which saves the page before it permits the write.
bool Pager::may_read_beside(const Plan& away, const Plan& plan) {
  return away.of_program && away.write && !plan.write;
}

Pager::Step Pager::serve_chunk(Service& service) {
  if (parts_.children.is_full() && needs_child(service)) {
    reclaim_children(true);
    // All children are in service: one will be released soon.
    if (parts_.children.is_full()) return services_away() != 0 ? Step::waiting : Step::more;
  }
  const ReaderStripes::Guard guard(parts_.readers);
  Region* region = nullptr;
  PageRange chunk;
  size_t total_pages = 0;
  Step step = find_chunk(service, region, chunk, total_pages);
  if (step != Step::more) return step;
  if (region == nullptr) {
    service.pages_done += chunk.count;
    step = Step::done;
  } else if (service.request.no_fault) {
    step = publish_present(*region, chunk, service);
  } else {
    Plan& plan = service.plan;
    const bool write = (service.request.target.need & kWriteRights) != 0;
    if (const Step planned = plan_chunk(*region, chunk, write, plan); planned != Step::done) return planned;
    plan.chunk_pages = chunk.count;
    if (plan.length_bytes == 0) {
      service.pages_done += chunk.count;
      step = Step::done;
    } else {
      for (size_t i = 0; i < service_count_; ++i) {
        const Service& other = services_[in_use_[i]];
        if (&other != &service && other.away && other.plan.overlaps(plan) &&
            !may_read_beside(other.plan, plan))
          return Step::waiting;
      }
      const Survey survey = surveyor_.look(plan.address, plan.pages.count, plan.write);
      if (survey.kind == FaultKind::swap) swap_space_.look(monotonic_ns());
      plan.kind = survey.kind;
      plan.of_file = survey.of_file;
      plan.of_program =
          region->is_paged_by_program.load(std::memory_order_relaxed) && is_paged_by_program(*region, plan);
      const bool is_slow = survey.is_slow || plan.of_program;
      // One thread stays available for quick requests.
      if (is_slow && parts_.threads > 1 && services_away() + 1 >= parts_.threads) return Step::waiting;
      plan.begun = begin_faults(*region, plan.pages, plan.write);
      // Holes of the registration may have been filled since. EINVAL: still a hole, and then populating
      // fails.
      if (region->watch_at_fault) static_cast<void>(watch_again(*region, plan));
      if (is_slow) return Step::away;
      populate(plan);
      step = publish(*region, service);
    }
  }
  if (step == Step::done && service.pages_done != total_pages) return Step::more;
  return step;
}

/// In an explicit region watches the pages of the plan, in an implicit one whole mappings
/// (Child::watch_start).
int Pager::watch_again(const Region& region, const Plan& plan) {
  return parts_.monitor.watch_again(plan.address, plan.address + plan.length_bytes,
                                    region.parent_children != nullptr);
}

/// For a region that the program's own userfaultfd held, and perhaps no longer holds: queries the kernel
/// (EBUSY).
bool Pager::is_paged_by_program(Region& region, const Plan& plan) {
  WatchBook* const book = parts_.monitor.book();
  if (book == nullptr || watch_again(region, plan) == EBUSY) return true;
  static_cast<void>(book->watch_again(region.start_page_address(), region.end_page_address(),
                                      region.parent_children != nullptr, [&region](int error) {
                                        if (error != EBUSY)
                                          region.is_paged_by_program.store(false, std::memory_order_relaxed);
                                      }));
  return false;
}

/// Plans the missing pages of a chunk. Returns done; failed if a page can never become resident; waiting if
/// a call of the program decides; more if such a call has just begun or ended.
Pager::Step Pager::plan_chunk(Region& region, PageRange chunk, bool write, Plan& plan) {
  plan = {};
  const uint64_t chunk_address = region.start_page_address() + chunk.first * kPageBytes;
  if (is_in_call({chunk_address, chunk_address + chunk.count * kPageBytes})) return Step::waiting;
  size_t first_missing = chunk.count;
  size_t end_missing = 0;
  for (size_t i = 0; i < chunk.count; ++i) {
    const PageState state = region.pages.state(chunk.first + i);
    if (state == PageState::dead) return Step::failed;
    if (state == PageState::doomed) return Step::more;  // its call has just begun, or ended
    if (!region.on_demand || allows(state, write)) continue;
    first_missing = std::min(first_missing, i);
    end_missing = i + 1;
  }
  if (end_missing == 0) return Step::done;
  plan.pages = {chunk.first + first_missing, end_missing - first_missing};
  plan.address = region.start_page_address() + plan.pages.first * kPageBytes;
  plan.length_bytes = plan.pages.count * kPageBytes;
  plan.write = write;
  return Step::done;
}

/// True if a call of the program has part of the range in progress: the request waits for its end
/// (look_at_waiting_again).
bool Pager::is_in_call(const AddressRange& range) {
  const CallLedger& ledger = ProcessPage::find()->ledger;
  if (!ledger.has(range)) return false;
  waits_for_calls_.store(1, std::memory_order_seq_cst);
  // The call may have ended before it could see the waiting request.
  return ledger.has(range);
}

/// In fresh memory, few pages that took long indicate a huge page.
void Pager::note_if_huge(Plan& plan, uint64_t took_ns) const {
  constexpr uint64_t kLongNs = 30'000;
  if (plan.kind == FaultKind::minor && took_ns > kLongNs && surveyor_.is_huge(plan.address))
    plan.kind = FaultKind::huge;
}

void Pager::populate(Plan& plan) const {
  constexpr size_t kFewPages = 16;
  rusage before{};
  const bool may_be_swap = plan.kind == FaultKind::minor;
  const bool few = plan.pages.count <= kFewPages;
  if (may_be_swap && !few) getrusage(RUSAGE_THREAD, &before);
  const uint64_t start_ns = few ? monotonic_ns() : 0;
  plan.error = 0;
  // A direct system call, since the library's own hook may interpose on the C library's name and counts
  // calls (AddressSpaceCall).
  if (syscall(SYS_madvise, plan.address, plan.length_bytes,
              plan.write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) != 0)
    plan.error = errno;
  if (few) note_if_huge(plan, monotonic_ns() - start_ns);
  if (may_be_swap && !few) {
    rusage after{};
    getrusage(RUSAGE_THREAD, &after);
    // For shared memory's pages in swap only the fault itself reveals the kind.
    if (after.ru_majflt != before.ru_majflt) plan.kind = FaultKind::swap;
  }
}

/// Completes a plan: pins the pages, then marks as resident those that no invalidation has removed
/// meanwhile.
Pager::Step Pager::publish(Region& region, Service& service, bool may_wait) {
  const Plan plan = service.plan;
  service.plan = {};
  // Another region has the key by now: these are not its pages.
  if (plan.address != region.start_page_address() + plan.pages.first * kPageBytes) return Step::more;
  service.kind = std::max(service.kind, plan.kind);
  const uint64_t now_ns = monotonic_ns();
  if (plan.kind == FaultKind::file) {
    file_read_at_ns_ = now_ns;
    reads_files_.store(true, std::memory_order_relaxed);
  }
  if (plan.error != 0) {
    give_up(region, plan.pages);
    if (region.parent_children != nullptr && region.resident_pages.load(std::memory_order_relaxed) == 0)
      parts_.children.sweep_wanted().store(true, std::memory_order_relaxed);
    // madvise(2): ENOMEM a hole or no memory, EINVAL protection, EFAULT beyond the end of the file,
    // EHWPOISON.
    if (plan.error == EINTR || plan.error == EAGAIN) return Step::more;
    // A failure may error the QP, so the service retries once: a file being truncated or collapsed may
    // transiently have no page.
    return std::exchange(service.failed_before, true) ? Step::failed : Step::more;
  }
  parts_.pins.pin_pages(region, plan.pages, now_ns, protect_since_ns(now_ns), &victims_);

  // A waiting event may concern these pages: the pages made resident could belong to another mapping. The
  // monitor must mark them first.
  if (parts_.monitor.is_busy()) {
    if (may_wait)
      parts_.monitor.settle();
    else
      give_up(region, plan.pages);
  }
  size_t published = 0;
  const PageEvent event = plan.write ? PageEvent::publish_write : PageEvent::publish_read;
  for (size_t page = plan.pages.first; page < plan.pages.first + plan.pages.count; ++page) {
    if (region.pages.apply(page, event) == PageState::faulting) ++published;
  }
  parts_.counters.num_odp_mr_pages.add(published);
  region.resident_pages.fetch_add(published, std::memory_order_relaxed);
  service.pages_made_resident += published;
  (service.port == nullptr && !service.at_once ? region.counters->page_prefetch
                                               : region.counters->page_faults)
      .add(published);
  if (published == plan.begun) {
    service.pages_done += plan.chunk_pages;
    return Step::done;
  }
  // An invalidation intervened, and may have released pins before ours were made.
  parts_.counters.invalidations_faults_contentions.add();
  for (size_t page = plan.pages.first; page < plan.pages.first + plan.pages.count; ++page) {
    if (!is_resident(region.pages.state(page))) parts_.pins.unpin_pages(region, {page, 1});
  }
  return Step::more;
}

/// PREFETCH_NO_FAULT: publishes runs of pages that are mapped already.
Pager::Step Pager::publish_present(Region& region, PageRange chunk, Service& service) {
  const uint64_t address = region.start_page_address() + chunk.first * kPageBytes;
  const bool write = (service.request.target.need & kWriteRights) != 0;
  uint64_t present = surveyor_.present_mask(address, chunk.count);
  const size_t end_of_chunk = service.pages_done + chunk.count;
  while (present != 0) {
    const auto first = static_cast<size_t>(std::countr_zero(present));
    const auto count = static_cast<size_t>(std::countr_one(present >> first));
    present &= count == kChunkPages ? 0 : ~(((uint64_t{1} << count) - 1) << first);
    Plan& plan = service.plan;
    const Step planned = plan_chunk(region, {chunk.first + first, count}, write, plan);
    if (planned != Step::done) return planned;
    if (plan.length_bytes == 0) continue;
    plan.begun = begin_faults(region, plan.pages, write);
    populate(plan);
    // Not retried: what an invalidation has removed meanwhile is no longer mapped.
    static_cast<void>(publish(region, service));
  }
  service.plan = {};
  service.pages_done = end_of_chunk;
  return Step::done;
}

size_t Pager::begin_faults(Region& region, PageRange pages, bool write) {
  size_t begun = 0;
  size_t upgraded = 0;
  for (size_t page = pages.first; page < pages.first + pages.count; ++page) {
    if (allows(region.pages.state(page), write)) continue;
    const PageState before = region.pages.apply(page, PageEvent::begin_fault);
    if (before == PageState::dead || before == PageState::doomed) continue;
    ++begun;
    if (is_resident(before)) ++upgraded;
  }
  region.resident_pages.fetch_sub(upgraded, std::memory_order_relaxed);
  parts_.counters.num_odp_mr_pages.subtract(upgraded);
  return begun;
}

void Pager::give_up(Region& region, PageRange pages) {
  for (size_t page = pages.first; page < pages.first + pages.count; ++page) {
    if (region.pages.state(page) == PageState::faulting) region.pages.apply(page, PageEvent::drop);
  }
}

}  // namespace faultline::odp
