// SPDX-License-Identifier: BSD-3-Clause
#include "odp/invalidation/invalidation_monitor.hpp"

#include <cerrno>
#include <new>
#include <span>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "odp/invalidation/process_page.hpp"
#include "odp/mappings/mapping_list.hpp"
#include "stack/base/clock.hpp"
#include "stack/base/process/process_local.hpp"
#include "stack/base/process/service_thread.hpp"

namespace faultline::odp {

namespace {

/// The monitor of this process, while it has domains.
struct Living {
  std::mutex mutex;
  std::weak_ptr<InvalidationMonitor> monitor;
};
constinit ProcessLocal<Living> living;

}  // namespace

InvalidationMonitor* InvalidationMonitor::CallGuard::enter() {
  // A pointer that is read under the guard stays valid as long as the guard.
  ProcessPage* const page = ProcessPage::find();
  if (page == nullptr || page->monitor.load(std::memory_order_relaxed) == nullptr) return nullptr;
  page->calls.enter();
  InvalidationMonitor* const monitor = page->monitor.load(std::memory_order_seq_cst);
  if (monitor == nullptr) page->calls.leave();
  return monitor;
}

InvalidationMonitor::CallGuard::~CallGuard() {
  if (monitor != nullptr) ProcessPage::find()->calls.leave();
}

std::shared_ptr<InvalidationMonitor> InvalidationMonitor::instance(const MonitorConfig& config) {
  Living& known = living.get();
  const std::lock_guard lock(known.mutex);
  if (std::shared_ptr<InvalidationMonitor> monitor = known.monitor.lock()) return monitor;
  ProcessPage* const page = ProcessPage::make();
  if (page == nullptr) throw std::bad_alloc();
  std::shared_ptr<InvalidationMonitor> monitor(new InvalidationMonitor);
  monitor->start(config);
  known.monitor = monitor;
  page->monitor.store(monitor.get(), std::memory_order_seq_cst);
  return monitor;
}

void InvalidationMonitor::start(const MonitorConfig& config) {
  userfault_error_ = userfault_.open(config.level);
  if (userfault_error_ != 0) return;
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  if (stop_fd_ < 0) {
    userfault_error_ = errno;
    userfault_.close_descriptor();
    return;
  }
  thread_ = start_service_thread([this, realtime = config.realtime] { run(realtime); });
}

InvalidationMonitor::~InvalidationMonitor() {
  ProcessPage& page = *ProcessPage::find();
  InvalidationMonitor* self = this;
  page.monitor.compare_exchange_strong(self, nullptr, std::memory_order_seq_cst);
  page.calls.wait();
  if (stop_fd_ < 0) return;
  const uint64_t one = 1;
  while (write(stop_fd_, &one, sizeof one) < 0 && errno == EINTR) {
  }
  if (thread_.joinable()) thread_.join();  // not joinable if it could not be started
  close(stop_fd_);
}

bool InvalidationMonitor::add_sink(InvalidationSink& sink) {
  const std::lock_guard lock(sinks_mutex_);
  for (std::atomic<InvalidationSink*>& slot : sinks_) {
    if (slot.load(std::memory_order_relaxed) != nullptr) continue;
    slot.store(&sink, std::memory_order_release);
    return true;
  }
  return false;
}

void InvalidationMonitor::remove_sink(InvalidationSink& sink) {
  {
    const std::lock_guard lock(sinks_mutex_);
    for (std::atomic<InvalidationSink*>& slot : sinks_) {
      if (slot.load(std::memory_order_relaxed) == &sink) slot.store(nullptr, std::memory_order_seq_cst);
    }
  }
  // Without the mutex: a program's call may be waiting for the monitor's thread, which needs it.
  ProcessPage::find()->calls.wait();
}

bool InvalidationMonitor::OwnCalls::find_mapping_from(uint64_t address, MappingFacts& facts) {
  return odp::find_mapping_from(split_.maps(), address, facts);
}

void InvalidationMonitor::settle() const {
  // The current cycle may have read already; the next one reads all events that are waiting now. Without the
  // count, a program that causes events continuously would delay the caller for ever.
  const uint64_t enough = cycles_.load(std::memory_order_seq_cst) + 2;
  Backoff backoff;
  while (is_busy() && cycles_.load(std::memory_order_seq_cst) < enough) backoff.pause();
}

void InvalidationMonitor::wait_for_calls(const AddressRange& range) const {
  constexpr uint64_t kLongestNs = 1'000'000'000;
  const CallLedger& ledger = ProcessPage::find()->ledger;
  const bool has_events = thread_.joinable();
  const uint64_t start_ns = monotonic_ns();
  Backoff backoff;
  while (((has_events && userfault_.has_calls()) || ledger.has(range)) &&
         monotonic_ns() - start_ns < kLongestNs)
    backoff.pause();
  if (has_events) settle();
}

void InvalidationMonitor::run(bool realtime) {
  prepare_service_thread("odp-monitor", realtime);
  std::array<pollfd, 2> pollers{pollfd{.fd = userfault_.fd(), .events = POLLIN, .revents = 0},
                                pollfd{.fd = stop_fd_, .events = POLLIN, .revents = 0}};
  Backoff after_failure;
  for (;;) {
    const bool is_ready = poll(pollers.data(), pollers.size(), -1) > 0;
    if (is_ready && (pollers[1].revents & POLLIN) != 0) break;
    if (is_ready && (pollers[0].revents & POLLIN) != 0 && handle_events() != 0) {
      after_failure = {};
      continue;
    }
    // An event that cannot be read, or a descriptor that the program has closed (POLLNVAL), is ready again
    // at once. Under SCHED_FIFO a loop without sleep would take the CPU from the program.
    after_failure.pause();
  }
  // The thread's exit releases its stack, which may be watched, and no thread would read that event.
  userfault_.close_descriptor();
}

size_t InvalidationMonitor::handle_events() {
  constexpr size_t kBatch = 64;
  std::array<uffd_msg, kBatch> events;
  const std::lock_guard lock(sinks_mutex_);
  handling_.store(true, std::memory_order_seq_cst);
  std::array<uint64_t, kMaxSinks> tokens;
  size_t count = 0;
  for_each_sink([&](InvalidationSink& sink) { tokens[count++] = sink.quiescence().raise_gate(); });
  count = 0;
  revoke_tickets();
  for_each_sink([&](InvalidationSink& sink) { sink.quiescence().wait_for_copies(tokens[count++]); });

  // One batch per cycle: remaining events keep the descriptor readable.
  const size_t taken = userfault_.read_events(events);
  std::array<AddressRange, kBatch> moved;
  for (size_t i = 0; i < taken; ++i) moved[i] = dispatch(events[i]);
  for_each_sink([](InvalidationSink& sink) { sink.quiescence().lower_gate(); });

  for (const AddressRange& range : std::span(moved).first(taken))
    if (!range.is_empty())
      for_each_sink([&](InvalidationSink& sink) { sink.release_pins(range.start, range.end); });
  cycles_.fetch_add(1, std::memory_order_seq_cst);
  handling_.store(false, std::memory_order_seq_cst);
  return taken;
}

AddressRange InvalidationMonitor::dispatch(const uffd_msg& event) {
  const auto apply = [this](const AddressRange& range, PageEvent change) {
    CallLedger& ledger = ProcessPage::find()->ledger;
    // Recorded for the program's calls in progress in this range, until they end.
    if (change == PageEvent::kill) ledger.note_unmapped(range);
    // The event belongs to a call that a hook has seen. Walking a large range again would hold the gate, and
    // occupy a CPU, for a millisecond.
    if (ledger.already_marks(change, range)) return AddressRange{};
    for_each_sink(
        [&](InvalidationSink& sink) { static_cast<void>(sink.apply(range.start, range.end, change)); });
    return range;
  };
  switch (event.event) {
    case UFFD_EVENT_REMOVE:
      return apply({event.arg.remove.start, event.arg.remove.end}, PageEvent::drop);
    case UFFD_EVENT_UNMAP:
      book_.note_unmapping();
      return apply({event.arg.remove.start, event.arg.remove.end}, PageEvent::kill);
    case UFFD_EVENT_REMAP:
      book_.note_unmapping();
      return apply({event.arg.remap.from, event.arg.remap.from + event.arg.remap.len}, PageEvent::kill);
    default:
      return {};
  }
}

}  // namespace faultline::odp
