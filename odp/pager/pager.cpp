// SPDX-License-Identifier: BSD-3-Clause
#include "odp/pager/pager.hpp"

#include <algorithm>
#include <climits>
#include <ctime>
#include <exception>
#include <optional>

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stack/base/process/service_thread.hpp"

namespace faultline::odp {

namespace {

void futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout = nullptr) {
  syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

Pager::Pager(const Parts& parts) : parts_(parts) {
  for (uint16_t i = 0; i < kMaxServices; ++i) free_[i] = i;
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
  for (std::atomic<FaultRings*>& slot : ports_) delete slot.load(std::memory_order_relaxed);
}

FaultRings* Pager::open_port() {
  const std::lock_guard lock(ports_mutex_);
  for (std::atomic<FaultRings*>& slot : ports_) {
    FaultRings* port = slot.load(std::memory_order_relaxed);
    if (port == nullptr) {
      port = new FaultRings;
      port->state.store(FaultRings::State::open, std::memory_order_release);
      slot.store(port, std::memory_order_release);
      return port;
    }
    if (port->state.load(std::memory_order_acquire) == FaultRings::State::unused) {
      port->state.store(FaultRings::State::open, std::memory_order_release);
      return port;
    }
  }
  return nullptr;
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
    constexpr timespec kUntilExpiry{0, static_cast<long>(kUnpinnedNs / 2)};
    const bool expires = parts_.counters.unpinned_bytes.get() != 0;
    futex(sleeping_, FUTEX_WAIT_PRIVATE, kAsleep, expires ? &kUntilExpiry : nullptr);
  }
  lock.lock();
  leader_sleeps_ = false;
}

void Pager::expire_unpinned() {
  if (reads_files() && monotonic_ns() - file_read_at_ns_ > kFileReadsNs)
    reads_files_.store(false, std::memory_order_relaxed);
  if (parts_.counters.unpinned_bytes.get() == 0) return;
  const uint64_t now_ns = monotonic_ns();
  if (now_ns < next_expiry_ns_) return;
  next_expiry_ns_ = now_ns + kUnpinnedNs / 4;
  parts_.pins.pin_waiting(now_ns - kUnpinnedNs);
  parts_.pins.expire_unpinned(now_ns - kUnpinnedNs);
}

bool Pager::has_work() const {
  bool work = stopping_.load(std::memory_order_acquire) || !background_.empty() ||
              parts_.children.sweep_wanted().load(std::memory_order_relaxed) ||
              call_ended_.load(std::memory_order_seq_cst);
  for_each_port([&work](const FaultRings& port) {
    const FaultRings::State state = port.state.load(std::memory_order_acquire);
    work |=
        state == FaultRings::State::closing || (state == FaultRings::State::open && !port.requests.empty());
  });
  return work;
}

void Pager::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_.load(std::memory_order_acquire)) {
    let_go_of_closing_ports();
    expire_unpinned();
    if (call_ended_.load(std::memory_order_relaxed) &&
        call_ended_.exchange(false, std::memory_order_seq_cst)) {
      waits_for_calls_.store(0, std::memory_order_seq_cst);
      for (size_t i = 0; i < service_count_; ++i) services_[in_use_[i]].waiting = false;
    }
    admit();
    Service* const service = next_service();
    if (service == nullptr) {
      if (parts_.children.sweep_wanted().exchange(false, std::memory_order_relaxed)) reclaim_children(false);
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

void Pager::let_go_of_closing_ports() {
  for_each_port([this](FaultRings& port) {
    if (port.state.load(std::memory_order_acquire) != FaultRings::State::closing) return;
    for (size_t i = 0; i < service_count_;) {
      Service& service = services_[in_use_[i]];
      if (service.port == &port && service.away) service.abandoned = true;
      if (service.port == &port && !service.away) {
        free_[kMaxServices - service_count_] = in_use_[i];
        in_use_[i] = in_use_[--service_count_];
      } else {
        ++i;
      }
    }
    QueuedFault left;
    while (port.requests.try_pop(left)) {
    }
    port.state.store(FaultRings::State::unused, std::memory_order_release);
    port.state.notify_all();
  });
}

Pager::Service* Pager::place_for(const FaultRequest& request) {
  const uint16_t place = free_[kMaxServices - 1 - service_count_];
  in_use_[service_count_++] = place;
  Service& service = services_[place];
  service = {};
  service.request = request;
  service.started_at_ns = monotonic_ns();
  service.queued_at_ns = service.started_at_ns;
  return &service;
}

void Pager::admit() {
  bool took = true;
  // Takes one request per port in turn: no engine can fill the table alone.
  while (took) {
    took = false;
    for_each_port([&](FaultRings& port) {
      // The upper half is reserved for ports, since background requests use only the lower half (see below).
      if (service_count_ == kMaxServices ||
          port.state.load(std::memory_order_acquire) != FaultRings::State::open)
        return;
      QueuedFault fault;
      if (!port.requests.try_pop(fault)) return;
      if (is_read_ahead(fault.request))
        fault.request.length_bytes = std::min(fault.request.length_bytes, kChunkPages / 2 * kPageBytes);
      Service* const service = place_for(fault.request);
      service->port = &port;
      service->queued_at_ns = fault.queued_at_ns;
      took = true;
    });
  }
  BackgroundRequest request;
  while (service_count_ < kMaxServices / 2 && background_.try_pop(request))
    place_for(request.request)->wait = request.wait;
}

Pager::Service* Pager::next_service() {
  // Every eighth pick prefers advice; otherwise engines that fault continuously would delay it for ever.
  constexpr unsigned kBackgroundTurn = 8;
  const bool advice_first = ++picks_ % kBackgroundTurn == 0;
  Service* best = nullptr;
  int best_rank = 0;
  for (size_t i = 0; i < service_count_; ++i) {
    const size_t at = (cursor_ + i) % service_count_;
    Service& service = services_[in_use_[at]];
    if (service.away || service.waiting) continue;
    const int rank = service.port == nullptr ? (advice_first ? 4 : 1) : service.request.urgent ? 3 : 2;
    if (rank <= best_rank) continue;
    best = &service;
    best_rank = rank;
  }
  ++cursor_;
  return best;
}

void Pager::serve(Service& service) {
  // Most pages that one access needs: a packet of 4096 bytes at any offset. An engine that was answered
  // after fewer pages (the last page of a child) would retry for ever if the next page cannot be made
  // resident.
  constexpr size_t kAccessPages = 2;
  Step step = serve_chunk(service);
  if (step == Step::away) {
    serve_away(service);
    if (service.abandoned) {
      step = Step::failed;
    } else {
      const ReaderStripes::Guard guard(parts_.readers);
      Region* region = nullptr;
      PageRange chunk;
      size_t total_pages = 0;
      step = find_chunk(service, region, chunk, total_pages);
      if (step == Step::more) step = publish(*region, service);
      if (step == Step::done && service.pages_done != total_pages) step = Step::more;
    }
  }
  if (step == Step::waiting) {
    service.waiting = true;
  } else if (step != Step::more) {
    finish(service, step);
  } else if (service.pages_done >= kAccessPages && service.port != nullptr && !service.told) {
    tell(service, Step::done);
  }
  if (victims_.count != 0) page_out_victims();
}

/// Executes work that may take long without the mutex; the thread that the next request wakes leads
/// meanwhile.
template <typename Work>
void Pager::without_mutex(bool of_file, Work work) {
  bool others = false;
  for (size_t i = 0; i < service_count_; ++i) {
    const Service& other = services_[in_use_[i]];
    others |= !other.away && !other.waiting;
  }
  // The work may need a CPU for long (swap in compressed memory, a search for pages to reclaim). One such
  // thread may keep its real-time priority; several would take all CPUs from the engines. A disk access
  // gains nothing from priority.
  const bool demoted = (away_count_++ != 0 || of_file) && is_realtime();
  if (!leader_sleeps_) sleeping_.exchange(kAway, std::memory_order_seq_cst);
  mutex_.unlock();
  if (others || has_work()) wake();
  if (demoted) be_realtime(false);
  work();
  if (demoted) be_realtime(true);
  returning_.fetch_add(1, std::memory_order_relaxed);
  mutex_.lock();
  returning_.fetch_sub(1, std::memory_order_relaxed);
  --away_count_;
}

void Pager::be_realtime(bool realtime) const {
  sched_param parameters{};
  parameters.sched_priority = realtime ? 1 : 0;
  pthread_setschedparam(pthread_self(), realtime ? SCHED_FIFO : SCHED_OTHER, &parameters);
}

void Pager::serve_away(Service& service) {
  service.away = true;
  Plan plan = service.plan;
  // A thread that waits for a device, or for the program, releases mmap_lock meanwhile.
  const bool computes = plan.kind != FaultKind::file && !plan.of_program;
  without_mutex(plan.of_file, [this, &plan, computes] {
    std::optional<AddressSpaceCall> call;
    if (computes) call.emplace();
    populate(plan);
  });
  service.plan = plan;
  service.away = false;
  for (size_t i = 0; i < service_count_; ++i) services_[in_use_[i]].waiting = false;
}

size_t Pager::services_away() const {
  size_t away = 0;
  for (size_t i = 0; i < service_count_; ++i) away += services_[in_use_[i]].away;
  return away;
}

uint64_t Pager::protect_since_ns(uint64_t now_ns) const {
  uint64_t oldest_ns = now_ns;
  for (size_t i = 0; i < service_count_; ++i)
    oldest_ns = std::min(oldest_ns, services_[in_use_[i]].started_at_ns);
  return oldest_ns - kMinResidenceNs;
}

void Pager::tell(Service& service, Step step) {
  CounterCells& counters = parts_.counters;
  service.told = true;
  const Resolution resolution{service.request.waiter,
                              step == Step::done ? Outcome::done : Outcome::violation};
  // Cannot be full: the session limits outstanding requests. Sent first, since its waiter is stalled.
  static_cast<void>(service.port->resolutions.try_push(resolution));
  if (step == Step::failed) counters.num_failed_resolutions.add();
  if (step == Step::done && service.pages_made_resident == 0) {
    counters.faults_coalesced.add();
  } else {
    counters.num_page_faults.add();
    counters.note_service(service.kind, monotonic_ns() - service.queued_at_ns);
  }
}

bool Pager::is_read_ahead(const FaultRequest& request) const {
  for (size_t i = 0; i < service_count_; ++i) {
    const Service& service = services_[in_use_[i]];
    if (!service.told || service.abandoned || service.request.target.key != request.target.key ||
        (request.target.need & kWriteRights & ~service.request.target.need) != 0)
      continue;
    const uint64_t offset = request.va - service.request.va;
    if (offset < service.request.length_bytes &&
        request.length_bytes <= service.request.length_bytes - offset)
      return true;
  }
  return false;
}

void Pager::finish(Service& service, Step step) {
  CounterCells& counters = parts_.counters;
  if (service.abandoned) {
    // There is no port to answer.
  } else if (service.port == nullptr) {
    if (step == Step::failed) counters.num_failed_resolutions.add();
    counters.num_prefetches_handled.add();
    counters.num_prefetch_pages.add(service.pages_made_resident);
    if (service.wait != nullptr) {
      service.wait->state.store(step == Step::done ? PrefetchWait::State::done : PrefetchWait::State::failed,
                                std::memory_order_release);
      service.wait->state.notify_one();
    }
  } else {
    // A failure after the first chunk is reported to the next request that reaches it.
    if (!service.told) tell(service, step);
    counters.num_page_fault_pages.add(service.pages_made_resident);
  }
  const auto place = static_cast<uint16_t>(&service - services_.data());
  for (size_t i = 0; i < service_count_; ++i) {
    if (in_use_[i] != place) continue;
    free_[kMaxServices - service_count_] = place;
    in_use_[i] = in_use_[--service_count_];
    return;
  }
}

/// If memory is short, pages out what the CLOCK has unpinned, at once rather than when the kernel searches
/// for pages to reclaim.
void Pager::page_out_victims() {
  const PinTable::Victims victims = victims_;
  victims_.count = 0;
  if (!pressure_.is_short(monotonic_ns())) return;
  for (const PinTable::Victims::Range& range : std::span(victims.ranges).first(victims.count))
    parts_.counters.victims_paged_out.add(range.length_bytes / kPageBytes);
  without_mutex(false, [&victims] {
    const AddressSpaceCall call;
    for (const PinTable::Victims::Range& range : std::span(victims.ranges).first(victims.count))
      static_cast<void>(madvise(reinterpret_cast<void*>(range.address), range.length_bytes, MADV_PAGEOUT));
  });
}

}  // namespace faultline::odp
