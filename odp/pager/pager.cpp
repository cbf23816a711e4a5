// SPDX-License-Identifier: BSD-3-Clause
#include "odp/pager/pager.hpp"

#include <algorithm>
#include <climits>
#include <ctime>
#include <exception>
#include <optional>
#include <span>

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odp/regions/address_space.hpp"
#include "stack/base/clock.hpp"
#include "stack/base/probes.hpp"
#include "stack/base/process/service_thread.hpp"

namespace faultline::odp {

namespace {

void futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout = nullptr) {
  syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

Pager::Pager(const Parts& parts)
    : parts_(parts),
      scheduler_(parts.counters),
      children_({.keys = parts.keys,
                 .readers = parts.readers,
                 .quiescence = parts.quiescence,
                 .pins = parts.pins,
                 .pool = parts.children,
                 .counters = parts.counters,
                 .monitor = parts.monitor,
                 .surveyor = surveyor_,
                 .scheduler = scheduler_}),
      maker_({.keys = parts.keys,
              .readers = parts.readers,
              .pins = parts.pins,
              .counters = parts.counters,
              .monitor = parts.monitor,
              .surveyor = surveyor_,
              .scheduler = scheduler_,
              .children = children_,
              .threads = parts.threads}),
      short_faults_({.keys = parts.keys,
                     .readers = parts.readers,
                     .pins = parts.pins,
                     .surveyor = surveyor_,
                     .scheduler = scheduler_,
                     .maker = maker_}) {
  std::atomic<unsigned> started{0};
  const unsigned wanted = std::max(1U, parts.threads);
  threads_.reserve(wanted);
  try {
    for (unsigned i = 0; i < wanted; ++i) {
      threads_.push_back(start_service_thread([this, &started] {
        is_realtime_.store(prepare_service_thread("odp-pager", parts_.realtime), std::memory_order_relaxed);
        started.fetch_add(1, std::memory_order_release);
        started.notify_one();
        run();
      }));
    }
  } catch (const std::exception&) {
    // Memory or threads are exhausted. One thread is enough; none is not.
    if (threads_.empty()) throw;
  }
  for (unsigned seen = 0; seen < threads_.size(); seen = started.load(std::memory_order_acquire))
    started.wait(seen, std::memory_order_acquire);
}

Pager::~Pager() {
  stopping_.store(true, std::memory_order_release);
  sleeping_.store(kAwake, std::memory_order_seq_cst);
  futex(sleeping_, FUTEX_WAKE_PRIVATE, INT_MAX);
  standby_.fetch_add(1, std::memory_order_seq_cst);
  futex(standby_, FUTEX_WAKE_PRIVATE, INT_MAX);
  for (std::thread& thread : threads_) thread.join();
}

void Pager::close_port(FaultRings& port) {
  port.state.store(FaultRings::State::closing, std::memory_order_release);
  wake();
  port.state.wait(FaultRings::State::closing, std::memory_order_acquire);
}

void Pager::wake() {
  // The exchange orders what was queued before it against the pager's own exchange in sleep_until_woken():
  // either the pager sees the work, or this thread sees that the pager sleeps.
  switch (sleeping_.exchange(kAwake, std::memory_order_seq_cst)) {
    case kAsleep:
      futex(sleeping_, FUTEX_WAKE_PRIVATE, 1);
      return;
    case kAway:
      standby_.fetch_add(1, std::memory_order_seq_cst);
      futex(standby_, FUTEX_WAKE_PRIVATE, 1);
      return;
    default:
      return;
  }
}

/// If one thread is enough, it is always the same thread, with its CPU's caches. The leader sleeps on its
/// own futex; the other threads sleep on another, which is woken while the leader is away.
void Pager::sleep_until_woken(std::unique_lock<PiMutex>& lock) {
  if (leader_sleeps_) {
    const uint32_t seen = standby_.load(std::memory_order_seq_cst);
    lock.unlock();
    if (!stopping_.load(std::memory_order_seq_cst)) futex(standby_, FUTEX_WAIT_PRIVATE, seen);
    lock.lock();
    return;
  }
  leader_sleeps_ = true;
  lock.unlock();
  sleeping_.exchange(kAsleep, std::memory_order_seq_cst);
  if (has_work()) {
    sleeping_.store(kAwake, std::memory_order_relaxed);
  } else {
    constexpr timespec kUntilExpiry{0, static_cast<long>(PageMaker::kUnpinnedNs / 2)};
    futex(sleeping_, FUTEX_WAIT_PRIVATE, kAsleep, maker_.expires() ? &kUntilExpiry : nullptr);
  }
  lock.lock();
  leader_sleeps_ = false;
}

bool Pager::has_work() const {
  return stopping_.load(std::memory_order_acquire) || scheduler_.has_queued_work() ||
         children_.has_idle_work();
}

void Pager::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_.load(std::memory_order_acquire)) {
    scheduler_.release_closing_ports();
    maker_.expire_unpinned();
    scheduler_.look_at_call_ends();
    scheduler_.admit();
    FaultService* const service = scheduler_.next();
    if (service == nullptr) {
      children_.reclaim_idle();
      sleep_until_woken(lock);
      continue;
    }
    // While the gate is up nothing may be published: an engine that retries would miss again.
    Backoff backoff;
    while (parts_.quiescence.gate_is_up()) backoff.pause();
    serve(*service);
    if (returning_.load(std::memory_order_relaxed) != 0) {
      lock.unlock();
      lock.lock();
    }
  }
}

void Pager::serve(FaultService& service) {
  // Most pages that one access needs: a packet of 4096 bytes at any offset. An engine that was answered
  // after fewer pages (the last page of a child) would retry for ever if the next page cannot be made
  // resident.
  constexpr size_t kAccessPages = 2;
  ChunkResult result = maker_.make_chunk(service);
  if (result == ChunkResult::planned) {
    populate_away(service);
    result = service.abandoned ? ChunkResult::impossible : maker_.finish_away(service);
  }
  switch (result) {
    case ChunkResult::blocked:
      scheduler_.make_wait(service);
      break;
    case ChunkResult::complete:
      scheduler_.finish(service, Outcome::done);
      break;
    case ChunkResult::impossible:
      scheduler_.finish(service, Outcome::violation);
      break;
    case ChunkResult::more:
    case ChunkResult::planned:
      if (service.pages_done >= kAccessPages && !service.is_advice && !service.answered)
        scheduler_.answer(service, Outcome::done);
      break;
  }
  if (maker_.victims().count != 0) page_out_victims();
}

/// Executes work that may take long without the mutex; the thread that the next request wakes leads
/// meanwhile.
template <typename Work>
void Pager::without_mutex(bool of_file, Work work) {
  const bool others = scheduler_.has_ready();
  // The work may need a CPU for long (swap in compressed memory, a search for pages to reclaim). One such
  // thread may keep its real-time priority; several would take all CPUs from the engines. A disk access
  // gains nothing from priority.
  const bool demoted = (threads_away_++ != 0 || of_file) && is_realtime();
  if (!leader_sleeps_) sleeping_.exchange(kAway, std::memory_order_seq_cst);
  mutex_.unlock();
  if (others || has_work()) wake();
  if (demoted) be_realtime(false);
  work();
  if (demoted) be_realtime(true);
  returning_.fetch_add(1, std::memory_order_relaxed);
  mutex_.lock();
  returning_.fetch_sub(1, std::memory_order_relaxed);
  --threads_away_;
}

void Pager::be_realtime(bool realtime) const {
  sched_param parameters{};
  parameters.sched_priority = realtime ? 1 : 0;
  pthread_setschedparam(pthread_self(), realtime ? SCHED_FIFO : SCHED_OTHER, &parameters);
}

void Pager::populate_away(FaultService& service) {
  scheduler_.begin_away(service);
  ChunkPlan plan = service.plan;
  // A thread that waits for a device, or for the program, releases mmap_lock meanwhile.
  const bool computes = plan.kind != FaultKind::file && !plan.of_program;
  without_mutex(plan.of_file, [this, &plan, computes] {
    std::optional<AddressSpaceCall> call;
    if (computes) call.emplace();
    maker_.populate(plan);
  });
  service.plan = plan;
  scheduler_.end_away(service);
}

/// If memory is short, pages out what the CLOCK has unpinned, at once rather than when the kernel searches
/// for pages to reclaim.
void Pager::page_out_victims() {
  const PinTable::Victims victims = maker_.victims();
  maker_.victims().count = 0;
  if (!pressure_.is_short(monotonic_ns())) return;
  for (const PinTable::Victims::Range& range : std::span(victims.ranges).first(victims.count))
    parts_.counters.victims_paged_out.add(range.length_bytes / kPageBytes);
  without_mutex(false, [&victims] {
    const AddressSpaceCall call;
    for (const PinTable::Victims::Range& range : std::span(victims.ranges).first(victims.count))
      static_cast<void>(madvise(reinterpret_cast<void*>(range.address), range.length_bytes, MADV_PAGEOUT));
  });
}

void Pager::drop_children(Region& parent) {
  const std::lock_guard lock(mutex_);
  children_.drop_all(parent);
}

bool Pager::may_serve_at_once(uint64_t now_ns) const {
  return short_faults_.may_serve(now_ns) && !stopping_.load(std::memory_order_acquire) &&
         !parts_.quiescence.gate_is_up() && !parts_.monitor.is_handling() &&
         !AddressSpaceCall::any_in_progress();
}

bool Pager::serve_at_once(const FaultRequest& request) {
  if (!ShortFaults::is_short(request)) return false;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  const uint64_t start_ns = monotonic_ns();
  if (!may_serve_at_once(start_ns)) return false;
  FaultService service;
  service.request = request;
  service.started_at_ns = start_ns;
  const bool none_expires = !maker_.expires();
  const bool served = short_faults_.serve(service);
  const uint64_t took_ns = monotonic_ns() - start_ns;
  short_faults_.note_duration(start_ns, took_ns);
  lock.unlock();
  // The leader sleeps without a deadline while no unpinned page needs a pin or an expiry: wake it.
  if (none_expires && maker_.expires()) wake();
  if (served) count_served_at_once(service, took_ns);
  return served;
}

void Pager::count_served_at_once(const FaultService& service, uint64_t took_ns) {
  CounterCells& counters = parts_.counters;
  probes::resolve(service.request.target.key, service.request.va, service.pages_made_resident,
                  static_cast<uint8_t>(service.kind), static_cast<uint8_t>(Outcome::done), took_ns);
  if (service.pages_made_resident == 0) {
    counters.faults_coalesced.add();
    return;
  }
  counters.num_page_faults.add();
  counters.num_page_fault_pages.add(service.pages_made_resident);
  counters.faults_served_at_once.add();
  counters.note_service(service.kind, took_ns);
}

}  // namespace faultline::odp
