// SPDX-License-Identifier: BSD-3-Clause
#include "odp/pager/fault_scheduler.hpp"

#include <algorithm>

#include "stack/base/clock.hpp"
#include "stack/base/probes.hpp"

namespace faultline::odp {

FaultScheduler::FaultScheduler(CounterCells& counters) : counters_(counters) {
  for (uint16_t i = 0; i < kMaxServices; ++i) free_[i] = i;
}

FaultScheduler::~FaultScheduler() {
  for (std::atomic<FaultRings*>& slot : ports_) delete slot.load(std::memory_order_relaxed);
}

FaultRings* FaultScheduler::open_port() {
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

bool FaultScheduler::has_queued_work() const {
  bool work = !background_.empty() || call_ended_.load(std::memory_order_seq_cst);
  for_each_port([&work](const FaultRings& port) {
    const FaultRings::State state = port.state.load(std::memory_order_acquire);
    work |=
        state == FaultRings::State::closing || (state == FaultRings::State::open && !port.requests.empty());
  });
  return work;
}

void FaultScheduler::release_closing_ports() {
  for_each_port([this](FaultRings& port) {
    if (port.state.load(std::memory_order_acquire) != FaultRings::State::closing) return;
    for (size_t i = 0; i < service_count_;) {
      FaultService& service = services_[in_use_[i]];
      const bool is_away = service.state == ServiceState::away;
      if (service.port == &port && is_away) service.abandoned = true;
      if (service.port == &port && !is_away)
        release_place(i);
      else
        ++i;
    }
    QueuedFault left;
    while (port.requests.try_pop(left)) {
    }
    port.state.store(FaultRings::State::unused, std::memory_order_release);
    port.state.notify_all();
  });
}

FaultService& FaultScheduler::place_for(const FaultRequest& request) {
  const uint16_t place = free_[kMaxServices - 1 - service_count_];
  in_use_[service_count_++] = place;
  FaultService& service = services_[place];
  service = {};
  service.request = request;
  service.started_at_ns = monotonic_ns();
  service.queued_at_ns = service.started_at_ns;
  return service;
}

/// `index` is of in_use_.
void FaultScheduler::release_place(size_t index) {
  free_[kMaxServices - service_count_] = in_use_[index];
  in_use_[index] = in_use_[--service_count_];
}

void FaultScheduler::admit() {
  bool took = true;
  // Takes one request per port in turn: no engine can fill the table alone.
  while (took) {
    took = false;
    for_each_port([&](FaultRings& port) {
      if (service_count_ == kMaxServices ||
          port.state.load(std::memory_order_acquire) != FaultRings::State::open)
        return;
      QueuedFault fault;
      if (!port.requests.try_pop(fault)) return;
      if (is_read_ahead(fault.request))
        fault.request.length_bytes = std::min(fault.request.length_bytes, kReadAheadPages * kPageBytes);
      FaultService& service = place_for(fault.request);
      service.port = &port;
      service.queued_at_ns = fault.queued_at_ns;
      took = true;
    });
  }
  BackgroundRequest request;
  while (service_count_ < kMostAdvice && background_.try_pop(request)) {
    FaultService& service = place_for(request.request);
    service.is_advice = true;
    service.wait = request.wait;
  }
}

int FaultScheduler::rank_of(const FaultService& service, bool advice_first) {
  if (service.is_advice) return advice_first ? 4 : 1;
  return service.request.urgent ? 3 : 2;
}

FaultService* FaultScheduler::next() {
  const bool advice_first = ++picks_ % kAdviceTurn == 0;
  FaultService* best = nullptr;
  int best_rank = 0;
  for (size_t i = 0; i < service_count_; ++i) {
    const size_t at = (cursor_ + i) % service_count_;
    FaultService& service = services_[in_use_[at]];
    if (service.state != ServiceState::ready) continue;
    const int rank = rank_of(service, advice_first);
    if (rank <= best_rank) continue;
    best = &service;
    best_rank = rank;
  }
  ++cursor_;
  return best;
}

bool FaultScheduler::has_ready() const {
  for (size_t i = 0; i < service_count_; ++i)
    if (services_[in_use_[i]].state == ServiceState::ready) return true;
  return false;
}

void FaultScheduler::begin_away(FaultService& service) {
  service.state = ServiceState::away;
  ++away_count_;
}

void FaultScheduler::end_away(FaultService& service) {
  service.state = ServiceState::ready;
  --away_count_;
  wake_waiting();
}

void FaultScheduler::wake_waiting() {
  for (size_t i = 0; i < service_count_; ++i) {
    FaultService& service = services_[in_use_[i]];
    if (service.state == ServiceState::waiting) service.state = ServiceState::ready;
  }
}

void FaultScheduler::look_at_call_ends() {
  if (!call_ended_.load(std::memory_order_relaxed) || !call_ended_.exchange(false, std::memory_order_seq_cst))
    return;
  waits_for_calls_.store(0, std::memory_order_seq_cst);
  wake_waiting();
}

uint64_t FaultScheduler::oldest_start_ns(uint64_t now_ns) const {
  uint64_t oldest_ns = now_ns;
  for (size_t i = 0; i < service_count_; ++i)
    oldest_ns = std::min(oldest_ns, services_[in_use_[i]].started_at_ns);
  return oldest_ns;
}

bool FaultScheduler::is_read_ahead(const FaultRequest& request) const {
  for (size_t i = 0; i < service_count_; ++i) {
    const FaultService& service = services_[in_use_[i]];
    if (!service.answered || service.abandoned || service.request.target.key != request.target.key ||
        (request.target.need & kWriteRights & ~service.request.target.need) != 0)
      continue;
    const uint64_t offset = request.va - service.request.va;
    if (offset < service.request.length_bytes &&
        request.length_bytes <= service.request.length_bytes - offset)
      return true;
  }
  return false;
}

void FaultScheduler::answer(FaultService& service, Outcome outcome) {
  service.answered = true;
  // Cannot be full: the session limits outstanding requests. Sent first, since its waiter is stalled.
  static_cast<void>(service.port->resolutions.try_push({service.request.waiter, outcome}));
  const uint64_t took_ns = monotonic_ns() - service.queued_at_ns;
  probes::resolve(service.request.target.key, service.request.va, service.pages_made_resident,
                  static_cast<uint8_t>(service.kind), static_cast<uint8_t>(outcome), took_ns);
  if (outcome != Outcome::done) counters_.num_failed_resolutions.add();
  if (outcome == Outcome::done && service.pages_made_resident == 0) {
    counters_.faults_coalesced.add();
  } else {
    counters_.num_page_faults.add();
    counters_.note_service(service.kind, took_ns);
  }
}

void FaultScheduler::finish_advice(FaultService& service, Outcome outcome) {
  if (outcome != Outcome::done) counters_.num_failed_resolutions.add();
  counters_.num_prefetches_handled.add();
  counters_.num_prefetch_pages.add(service.pages_made_resident);
  if (service.wait == nullptr) return;
  service.wait->state.store(
      outcome == Outcome::done ? PrefetchWait::State::done : PrefetchWait::State::failed,
      std::memory_order_release);
  service.wait->state.notify_one();
}

void FaultScheduler::finish(FaultService& service, Outcome outcome) {
  if (service.is_advice) {
    finish_advice(service, outcome);
  } else if (!service.abandoned) {  // otherwise there is no port to answer
    // A failure after the first chunk is reported to the next request that reaches it.
    if (!service.answered) answer(service, outcome);
    counters_.num_page_fault_pages.add(service.pages_made_resident);
  }
  const auto place = static_cast<uint16_t>(&service - services_.data());
  for (size_t i = 0; i < service_count_; ++i)
    if (in_use_[i] == place) return release_place(i);
}

}  // namespace faultline::odp
