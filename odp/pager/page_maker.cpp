// SPDX-License-Identifier: BSD-3-Clause
#include "odp/pager/page_maker.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odp/invalidation/process_page.hpp"
#include "stack/base/clock.hpp"

namespace faultline::odp {
namespace {

[[nodiscard]] bool is_write(const FaultService& service) {
  return (service.request.target.need & kWriteRights) != 0;
}

/// For a chunk that is not to be made resident now.
[[nodiscard]] ChunkResult result_of(PlanResult planned) {
  switch (planned) {
    case PlanResult::never:
      return ChunkResult::impossible;
    case PlanResult::in_call:
      return ChunkResult::blocked;
    case PlanResult::call_changed:
    case PlanResult::planned:
    case PlanResult::nothing_missing:
      break;
  }
  return ChunkResult::more;
}

[[nodiscard]] ChunkResult result_of(PublishResult published) {
  return published == PublishResult::never ? ChunkResult::impossible : ChunkResult::more;
}

/// `complete` instead of `more` once no page of the range is left.
[[nodiscard]] ChunkResult complete_if_last(ChunkResult result, const FaultService& service,
                                           size_t total_pages) {
  return result == ChunkResult::more && service.pages_done == total_pages ? ChunkResult::complete : result;
}

}  // namespace

PageMaker::Chunk PageMaker::find_chunk(const FaultService& service) {
  const FaultRequest& request = service.request;
  Region* const region = parts_.keys.find(request.target.key);
  if (region == nullptr) {
    parts_.counters.num_mrs_not_found.add();
    return {.place = Chunk::Place::forbidden};
  }
  const uint64_t offset = request.va - region->iova;
  if (!grants(*region, request.target, request.va, 0) || offset >= region->length_bytes)
    return {.place = Chunk::Place::forbidden};
  const uint64_t length_bytes = std::min(request.length_bytes, region->length_bytes - offset);
  if (length_bytes == 0) return {.place = Chunk::Place::beyond_range};
  const PageRange range = pages_of(*region, request.va, length_bytes);
  if (service.pages_done >= range.count) return {.place = Chunk::Place::beyond_range};
  Chunk chunk{.place = Chunk::Place::in_region,
              .region = region,
              .pages = {range.first + service.pages_done,
                        std::min<size_t>(kChunkPages, range.count - service.pages_done)},
              .total_pages = range.count};
  if (region->children == nullptr) return chunk;
  // In an implicit region: the pages of one child.
  chunk.pages.count = std::min(chunk.pages.count, kChildPages - chunk.pages.first % kChildPages);
  chunk.region = parts_.children.find_or_make(*region, request, chunk.pages.first << kPageShift);
  if (chunk.region != nullptr)
    chunk.pages.first -= chunk.region->first_page;
  else
    chunk.place = request.no_fault ? Chunk::Place::nowhere : Chunk::Place::forbidden;
  return chunk;
}

ChunkResult PageMaker::make_chunk(FaultService& service) {
  // Without room all children are in service: one will be released soon.
  if (!parts_.children.make_room_for(service))
    return parts_.scheduler.away_count() != 0 ? ChunkResult::blocked : ChunkResult::more;
  const ReaderStripes::Guard guard(parts_.readers);
  const Chunk chunk = find_chunk(service);
  switch (chunk.place) {
    case Chunk::Place::forbidden:
      return ChunkResult::impossible;
    case Chunk::Place::beyond_range:
      return ChunkResult::complete;
    case Chunk::Place::nowhere:
      service.pages_done += chunk.pages.count;
      return complete_if_last(ChunkResult::more, service, chunk.total_pages);
    case Chunk::Place::in_region:
      break;
  }
  const ChunkResult result = service.request.no_fault ? publish_present(*chunk.region, chunk.pages, service)
                                                      : make_missing(*chunk.region, chunk.pages, service);
  return complete_if_last(result, service, chunk.total_pages);
}

ChunkResult PageMaker::finish_away(FaultService& service) {
  const ReaderStripes::Guard guard(parts_.readers);
  const Chunk chunk = find_chunk(service);
  if (chunk.place == Chunk::Place::beyond_range) return ChunkResult::complete;
  if (chunk.place != Chunk::Place::in_region) return ChunkResult::impossible;
  const ChunkResult result = result_of(publish(*chunk.region, service));
  return complete_if_last(result, service, chunk.total_pages);
}

ChunkResult PageMaker::make_missing(Region& region, PageRange chunk, FaultService& service) {
  ChunkPlan& plan = service.plan;
  const PlanResult planned = plan_missing(region, chunk, is_write(service), plan);
  if (planned == PlanResult::nothing_missing) {
    service.pages_done += chunk.count;
    return ChunkResult::more;
  }
  if (planned != PlanResult::planned) return result_of(planned);
  plan.chunk_pages = chunk.count;
  if (is_being_made(plan)) return ChunkResult::blocked;
  return make_planned(region, service);
}

/// True if another thread is making pages of the plan resident.
bool PageMaker::is_being_made(const ChunkPlan& plan) const {
  const AddressRange range = plan.range();
  return parts_.scheduler.any_away([&](const ChunkPlan& away) {
    // A write that waits for the program's own handler (userfaultfd, write protection) must not delay a read
    // of the same page. The handler may be the reader, which saves the page before it permits the write.
    const bool may_read_beside = away.of_program && away.write && !plan.write;
    return away.overlaps(range) && !may_read_beside;
  });
}

/// Executes a plan, unless that may take long: then another thread must be able to lead meanwhile.
ChunkResult PageMaker::make_planned(Region& region, FaultService& service) {
  ChunkPlan& plan = service.plan;
  const Survey survey = parts_.surveyor.look(plan.address, plan.pages.count, plan.write);
  if (survey.kind == FaultKind::swap) swap_space_.look(monotonic_ns());
  plan.kind = survey.kind;
  plan.of_file = survey.of_file;
  plan.of_program =
      region.is_paged_by_program.load(std::memory_order_relaxed) && is_paged_by_program(region, plan);
  const bool is_slow = survey.is_slow || plan.of_program;
  // One thread stays available for quick requests.
  if (is_slow && parts_.threads > 1 && parts_.scheduler.away_count() + 1 >= parts_.threads)
    return ChunkResult::blocked;
  plan.begun = begin_faults(region, plan.pages, plan.write);
  // Holes of the registration may have been filled since. EINVAL: still a hole, and then populating fails.
  if (region.watch_at_fault) static_cast<void>(watch_again(region, plan));
  if (is_slow) return ChunkResult::planned;
  populate(plan);
  return result_of(publish(region, service));
}

/// In an explicit region watches the pages of the plan, in an implicit one whole mappings
/// (Child::watch_start).
int PageMaker::watch_again(const Region& region, const ChunkPlan& plan) {
  return parts_.monitor.watch_again(plan.address, plan.address + plan.length_bytes,
                                    region.parent_children != nullptr);
}

/// For a region that the program's own userfaultfd held, and perhaps no longer holds: queries the kernel
/// (EBUSY).
bool PageMaker::is_paged_by_program(Region& region, const ChunkPlan& plan) {
  WatchBook* const book = parts_.monitor.book();
  if (book == nullptr || watch_again(region, plan) == EBUSY) return true;
  static_cast<void>(book->watch_again(region.start_page_address(), region.end_page_address(),
                                      region.parent_children != nullptr, [&region](int error) {
                                        if (error != EBUSY)
                                          region.is_paged_by_program.store(false, std::memory_order_relaxed);
                                      }));
  return false;
}

PlanResult PageMaker::plan_missing(Region& region, PageRange chunk, bool write, ChunkPlan& plan) {
  plan = {};
  const uint64_t chunk_address = region.start_page_address() + chunk.first * kPageBytes;
  if (is_in_call({chunk_address, chunk_address + chunk.count * kPageBytes})) return PlanResult::in_call;
  size_t first_missing = chunk.count;
  size_t end_missing = 0;
  for (size_t i = 0; i < chunk.count; ++i) {
    const PageState state = region.pages.state(chunk.first + i);
    if (state == PageState::dead) return PlanResult::never;
    if (state == PageState::doomed) return PlanResult::call_changed;
    if (!region.on_demand || allows(state, write)) continue;
    first_missing = std::min(first_missing, i);
    end_missing = i + 1;
  }
  if (end_missing == 0) return PlanResult::nothing_missing;
  plan.pages = {chunk.first + first_missing, end_missing - first_missing};
  plan.address = region.start_page_address() + plan.pages.first * kPageBytes;
  plan.length_bytes = plan.pages.count * kPageBytes;
  plan.write = write;
  return PlanResult::planned;
}

/// True if a call of the program has part of the range in progress: the request waits for its end
/// (Pager::recheck_waiting).
bool PageMaker::is_in_call(const AddressRange& range) {
  const CallLedger& ledger = ProcessPage::find()->ledger;
  if (!ledger.has(range)) return false;
  parts_.scheduler.expect_call_end();
  // The call may have ended before it could see the waiting request.
  return ledger.has(range);
}

void PageMaker::note_if_huge(ChunkPlan& plan, uint64_t took_ns) const {
  constexpr uint64_t kLongNs = 30'000;
  if (plan.kind == FaultKind::minor && took_ns > kLongNs && parts_.surveyor.is_huge(plan.address))
    plan.kind = FaultKind::huge;
}

void PageMaker::populate(ChunkPlan& plan) const {
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

/// After a populate that has failed.
PublishResult PageMaker::note_failure(Region& region, const ChunkPlan& plan, FaultService& service) {
  give_up(region, plan.pages);
  if (region.parent_children != nullptr && region.resident_pages.load(std::memory_order_relaxed) == 0)
    parts_.children.note_empty_child();
  // madvise(2): ENOMEM a hole or no memory, EINVAL protection, EFAULT beyond the end of the file, EHWPOISON.
  if (plan.error == EINTR || plan.error == EAGAIN) return PublishResult::again;
  // A failure may error the QP, so the service retries once: a file being truncated or collapsed may
  // transiently have no page.
  return std::exchange(service.failed_before, true) ? PublishResult::never : PublishResult::again;
}

PublishResult PageMaker::publish(Region& region, FaultService& service, bool may_wait) {
  const ChunkPlan plan = service.plan;
  service.plan = {};
  // Another region has the key by now: these are not its pages.
  if (plan.address != region.start_page_address() + plan.pages.first * kPageBytes)
    return PublishResult::again;
  service.kind = std::max(service.kind, plan.kind);
  const uint64_t now_ns = monotonic_ns();
  if (plan.kind == FaultKind::file) {
    file_read_at_ns_ = now_ns;
    reads_files_.store(true, std::memory_order_relaxed);
  }
  if (plan.error != 0) return note_failure(region, plan, service);
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
  (service.is_advice ? region.counters->page_prefetch : region.counters->page_faults).add(published);
  if (published == plan.begun) {
    service.pages_done += plan.chunk_pages;
    return PublishResult::published;
  }
  // An invalidation intervened, and may have released pins before ours were made.
  parts_.counters.invalidations_faults_contentions.add();
  for (size_t page = plan.pages.first; page < plan.pages.first + plan.pages.count; ++page) {
    if (!is_resident(region.pages.state(page))) parts_.pins.unpin_pages(region, {page, 1});
  }
  return PublishResult::again;
}

/// PREFETCH_NO_FAULT: publishes runs of pages that are mapped already.
ChunkResult PageMaker::publish_present(Region& region, PageRange chunk, FaultService& service) {
  const uint64_t address = region.start_page_address() + chunk.first * kPageBytes;
  const bool write = is_write(service);
  uint64_t present = parts_.surveyor.present_mask(address, chunk.count);
  const size_t end_of_chunk = service.pages_done + chunk.count;
  while (present != 0) {
    const auto first = static_cast<size_t>(std::countr_zero(present));
    const auto count = static_cast<size_t>(std::countr_one(present >> first));
    present &= count == kChunkPages ? 0 : ~(((uint64_t{1} << count) - 1) << first);
    ChunkPlan& plan = service.plan;
    const PlanResult planned = plan_missing(region, {chunk.first + first, count}, write, plan);
    if (planned == PlanResult::nothing_missing) continue;
    if (planned != PlanResult::planned) return result_of(planned);
    plan.begun = begin_faults(region, plan.pages, write);
    populate(plan);
    // Not retried: what an invalidation has removed meanwhile is no longer mapped.
    static_cast<void>(publish(region, service));
  }
  service.plan = {};
  service.pages_done = end_of_chunk;
  return ChunkResult::more;
}

size_t PageMaker::begin_faults(Region& region, PageRange pages, bool write) {
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

void PageMaker::give_up(Region& region, PageRange pages) {
  for (size_t page = pages.first; page < pages.first + pages.count; ++page) {
    if (region.pages.state(page) == PageState::faulting) region.pages.apply(page, PageEvent::drop);
  }
}

void PageMaker::expire_unpinned() {
  if (reads_files() && monotonic_ns() - file_read_at_ns_ > kFileReadsNs)
    reads_files_.store(false, std::memory_order_relaxed);
  if (!expires()) return;
  const uint64_t now_ns = monotonic_ns();
  if (now_ns < next_expiry_ns_) return;
  next_expiry_ns_ = now_ns + kUnpinnedNs / 4;
  parts_.pins.pin_waiting(now_ns - kUnpinnedNs);
  parts_.pins.expire_unpinned(now_ns - kUnpinnedNs);
}

}  // namespace faultline::odp
