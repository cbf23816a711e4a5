// SPDX-License-Identifier: BSD-3-Clause
#include "odp/pager.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odp/service_thread.hpp"

namespace faultline::odp {

uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(now.tv_nsec);
}

Pager::Pager(const Parts& parts) : parts_(parts) {
  std::atomic<bool> started{false};
  thread_ = std::thread([this, &started] {
    is_realtime_.store(prepare_service_thread("odp-pager", parts_.realtime), std::memory_order_relaxed);
    started.store(true, std::memory_order_release);
    started.notify_one();
    run();
  });
  started.wait(false, std::memory_order_acquire);
}

Pager::~Pager() {
  stopping_.store(true, std::memory_order_release);
  wake();
  thread_.join();
  for (std::atomic<SessionPort*>& slot : ports_) delete slot.load(std::memory_order_relaxed);
}

SessionPort* Pager::open_port() {
  const std::lock_guard lock(ports_mutex_);
  for (std::atomic<SessionPort*>& slot : ports_) {
    SessionPort* port = slot.load(std::memory_order_relaxed);
    if (port == nullptr) {
      port = new SessionPort;
      port->state.store(SessionPort::State::open, std::memory_order_release);
      slot.store(port, std::memory_order_release);
      return port;
    }
    if (port->state.load(std::memory_order_acquire) == SessionPort::State::unused) {
      port->state.store(SessionPort::State::open, std::memory_order_release);
      return port;
    }
  }
  return nullptr;
}

void Pager::close_port(SessionPort& port) {
  port.state.store(SessionPort::State::closing, std::memory_order_release);
  wake();
  port.state.wait(SessionPort::State::closing, std::memory_order_acquire);
}

void Pager::wake() {
  // The exchange orders what was queued before it against the pager's own exchange in sleep_until_woken():
  // either the pager sees the work, or we see that it sleeps.
  if (sleeping_.exchange(0, std::memory_order_seq_cst) != 0)
    syscall(SYS_futex, &sleeping_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void Pager::sleep_until_woken() {
  sleeping_.exchange(1, std::memory_order_seq_cst);
  if (!has_work()) syscall(SYS_futex, &sleeping_, FUTEX_WAIT_PRIVATE, 1, nullptr, nullptr, 0);
  sleeping_.store(0, std::memory_order_relaxed);
}

bool Pager::has_work() const {
  bool work = stopping_.load(std::memory_order_acquire) || !background_.empty();
  for_each_port([&work](const SessionPort& port) {
    const SessionPort::State state = port.state.load(std::memory_order_acquire);
    work |=
        state == SessionPort::State::closing || (state == SessionPort::State::open && !port.requests.empty());
  });
  return work;
}

void Pager::run() {
  while (!stopping_.load(std::memory_order_acquire)) {
    let_go_of_closing_ports();
    admit();
    if (service_count_ == 0) {
      sleep_until_woken();
      continue;
    }
    // While the gate is up nothing may be published, and an engine that was told to try again would miss
    // again.
    Backoff backoff;
    while (parts_.quiescence.gate_is_up()) backoff.pause();
    serve_all();
  }
}

void Pager::let_go_of_closing_ports() {
  for_each_port([this](SessionPort& port) {
    if (port.state.load(std::memory_order_acquire) != SessionPort::State::closing) return;
    for (size_t i = 0; i < service_count_;) {
      if (services_[i].port == &port) {
        services_[i] = services_[--service_count_];
      } else {
        ++i;
      }
    }
    QueuedFault left;
    while (port.requests.try_pop(left)) {
    }
    port.state.store(SessionPort::State::unused, std::memory_order_release);
    port.state.notify_all();
  });
}

void Pager::admit() {
  const uint64_t now_ns = monotonic_ns();
  bool took = true;
  // One from each port in turns: no engine can fill the table alone.
  while (took) {
    took = false;
    for_each_port([&](SessionPort& port) {
      // A background request finds room only in the upper half, see below.
      if (service_count_ == kMaxServices ||
          port.state.load(std::memory_order_acquire) != SessionPort::State::open)
        return;
      QueuedFault fault;
      if (!port.requests.try_pop(fault)) return;
      services_[service_count_++] = {.request = fault.request,
                                     .port = &port,
                                     .queued_at_ns = fault.queued_at_ns,
                                     .started_at_ns = now_ns};
      took = true;
    });
  }
  BackgroundRequest request;
  while (service_count_ < kMaxServices / 2 && background_.try_pop(request)) {
    services_[service_count_++] = {
        .request = request.request, .wait = request.wait, .queued_at_ns = now_ns, .started_at_ns = now_ns};
  }
}

void Pager::serve_all() {
  bool served_background = false;
  for (size_t i = 0; i < service_count_;) {
    Service& service = services_[i];
    if (service.port == nullptr) {
      // One chunk of background work a round: engines go first.
      if (served_background) {
        ++i;
        continue;
      }
      served_background = true;
    }
    const Step step = serve_chunk(service);
    if (step == Step::more) {
      ++i;
      continue;
    }
    finish(service, step);
    services_[i] = services_[--service_count_];
  }
}

Pager::Step Pager::serve_chunk(Service& service) {
  const FaultRequest& request = service.request;
  const ReaderStripes::Guard guard(parts_.readers);
  Region* region = parts_.keys.find(request.target.key);
  if (region == nullptr) {
    parts_.counters.num_mrs_not_found.add();
    return Step::failed;
  }
  const uint64_t offset = request.va - region->iova;
  if (!grants(*region, request.target, request.va, 0) || offset >= region->length_bytes) return Step::failed;
  const uint64_t length_bytes = std::min(request.length_bytes, region->length_bytes - offset);
  if (length_bytes == 0) return Step::done;
  const PageRange range = pages_of(*region, request.va, length_bytes);
  const PageRange chunk{range.first + service.pages_done,
                        std::min<size_t>(kChunkPages, range.count - service.pages_done)};
  const Step step = make_resident(*region, chunk, (request.target.need & kWriteRights) != 0, service);
  if (step != Step::done) return step;
  service.pages_done += chunk.count;
  return service.pages_done == range.count ? Step::done : Step::more;
}

Pager::Step Pager::make_resident(Region& region, PageRange chunk, bool write, Service& service) {
  size_t first_missing = chunk.count;
  size_t end_missing = 0;
  for (size_t i = 0; i < chunk.count; ++i) {
    const PageState state = region.pages.state(chunk.first + i);
    if (state == PageState::dead) return Step::failed;
    if (!region.on_demand || allows(state, write)) continue;
    first_missing = std::min(first_missing, i);
    end_missing = i + 1;
  }
  if (end_missing == 0) return Step::done;

  const PageRange pages{chunk.first + first_missing, end_missing - first_missing};
  const size_t begun = begin_faults(region, pages, write);
  const uint64_t address = region.start_page_address() + pages.first * kPageBytes;
  const uint64_t bytes = pages.count * kPageBytes;
  // Holes of the registration may have been filled since; EINVAL: still a hole, and then populating fails.
  if (region.watch_at_fault && parts_.monitor != nullptr)
    (void)parts_.monitor->watch_again(address, address + bytes);
  if (madvise(reinterpret_cast<void*>(address), bytes, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) !=
      0) {
    const int error = errno;
    give_up(region, pages);
    // madvise(2): ENOMEM a hole or no memory, EINVAL protection, EFAULT beyond the end of the file,
    // EHWPOISON.
    return error == EINTR || error == EAGAIN ? Step::more : Step::failed;
  }
  const uint64_t now_ns = monotonic_ns();
  parts_.pins.pin_pages(region, pages, now_ns, protect_since_ns(now_ns));

  // An event that waits now may be about these pages: what we made resident could be another mapping's. Let
  // the monitor mark them first.
  if (parts_.monitor != nullptr && parts_.monitor->is_busy()) parts_.monitor->settle();
  size_t published = 0;
  const PageEvent event = write ? PageEvent::publish_write : PageEvent::publish_read;
  for (size_t page = pages.first; page < pages.first + pages.count; ++page) {
    if (region.pages.apply(page, event) == PageState::faulting) ++published;
  }
  parts_.counters.num_odp_mr_pages.add(published);
  region.resident_pages.fetch_add(published, std::memory_order_relaxed);
  service.pages_made_resident += published;
  if (published == begun) return Step::done;
  // An invalidation came between. Its release of pins may have come before ours.
  parts_.counters.invalidations_faults_contentions.add();
  for (size_t page = pages.first; page < pages.first + pages.count; ++page) {
    if (!is_resident(region.pages.state(page))) parts_.pins.unpin_pages(region, {page, 1});
  }
  return Step::more;
}

size_t Pager::begin_faults(Region& region, PageRange pages, bool write) {
  size_t begun = 0;
  size_t upgraded = 0;
  for (size_t page = pages.first; page < pages.first + pages.count; ++page) {
    if (allows(region.pages.state(page), write)) continue;
    const PageState before = region.pages.apply(page, PageEvent::begin_fault);
    if (before == PageState::dead) continue;
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

uint64_t Pager::protect_since_ns(uint64_t now_ns) const {
  uint64_t oldest_ns = now_ns;
  for (size_t i = 0; i < service_count_; ++i) oldest_ns = std::min(oldest_ns, services_[i].started_at_ns);
  return oldest_ns - kMinResidenceNs;
}

void Pager::finish(const Service& service, Step step) {
  CounterCells& counters = parts_.counters;
  if (step == Step::failed) counters.num_failed_resolutions.add();
  if (service.port == nullptr) {
    counters.num_prefetches_handled.add();
    counters.num_prefetch_pages.add(service.pages_made_resident);
    if (service.wait != nullptr) {
      service.wait->state.store(step == Step::done ? PrefetchWait::State::done : PrefetchWait::State::failed,
                                std::memory_order_release);
      service.wait->state.notify_one();
    }
    return;
  }
  if (step == Step::done && service.pages_made_resident == 0) {
    counters.faults_coalesced.add();
  } else {
    const uint64_t service_ns = monotonic_ns() - service.queued_at_ns;
    counters.num_page_faults.add();
    counters.num_page_fault_pages.add(service.pages_made_resident);
    counters.fault_service_ns_total.add(service_ns);
    counters.fault_service_ns_max.raise_to(service_ns);
  }
  const Resolution resolution{service.request.waiter,
                              step == Step::done ? Outcome::done : Outcome::violation};
  // Cannot be full: the session bounds what is outstanding.
  (void)service.port->resolutions.try_push(resolution);
}

}  // namespace faultline::odp
