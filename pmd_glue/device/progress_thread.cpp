// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/device/progress_thread.hpp"

#include <algorithm>

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "pmd_glue/device/running_device.hpp"
#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/engine/idle_backoff.hpp"
#include "stack/base/clock.hpp"
#include "stack/base/process/process_local.hpp"
#include "stack/base/process/service_thread.hpp"

namespace faultline::glue {
namespace {

// Polling continues for so long after the last frame: a wake-up costs more than the gaps in a stream.
constexpr TimeNs kLingerNs = 200'000;
constexpr TimeNs kFirstNapNs = 1'000'000;
// Sleep limit if frames wake the thread: only the port's state remains to be checked.
constexpr TimeNs kRungForSleepNs = 1'000'000'000;

constinit ProcessLocal<ProgressThread> progress_thread;

}  // namespace

ProgressThread::ProgressThread() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

ProgressThread& ProgressThread::instance() {
  return progress_thread.get();
}

void ProgressThread::abandon() {
  ProgressThread* const found = progress_thread.find();
  if (found == nullptr) return;
  found->abandoned_.store(true, std::memory_order_seq_cst);
  found->on_doorbell();
}

void ProgressThread::add(RunningDevice& device) {
  const std::lock_guard guard(mutex_);
  devices_.push_back(&device);
  if (!thread_.joinable()) {
    stop_ = false;
    thread_ = start_service_thread([this] { run(); });
  }
  wake();
}

void ProgressThread::remove(RunningDevice& device) {
  std::thread ended;
  {
    const std::lock_guard guard(mutex_);
    std::erase(devices_, &device);
    if (devices_.empty() && thread_.joinable()) {
      stop_ = true;
      ended = std::move(thread_);
    }
    wake();
  }
  if (ended.joinable()) ended.join();
}

void ProgressThread::on_doorbell() {
  if (asleep_.load(std::memory_order_seq_cst)) wake();
}

void ProgressThread::wake() {
  // One wake-up is enough: later callers find the flag clear.
  if (!asleep_.exchange(false, std::memory_order_acq_rel)) return;
  const uint64_t one = 1;
  static_cast<void>(!write(event_.get(), &one, sizeof one));
}

ProgressThread::Rounds ProgressThread::serve_devices() {
  const TimeNs now = monotonic_ns();
  Rounds rounds{.busy = false, .driven = false, .deadline = now + kRungForSleepNs};
  for (RunningDevice* device : devices_) {
    device->maintain(now);
    const RunningDevice::Housekeeping seen = device->housekeep();
    rounds.deadline = std::min(rounds.deadline, now + device->longest_sleep_ns());
    rounds.busy |= seen == RunningDevice::Housekeeping::busy;
    rounds.driven |= seen == RunningDevice::Housekeeping::driven;
    if (seen == RunningDevice::Housekeeping::quiet)
      rounds.deadline = std::min(rounds.deadline, device->next_deadline());
  }
  return rounds;
}

void ProgressThread::wake_up() {
  if (asleep_.exchange(false, std::memory_order_acq_rel)) return;  // not woken by wake()
  uint64_t wakes = 0;
  static_cast<void>(!read(event_.get(), &wakes, sizeof wakes));
}

void ProgressThread::nap(std::unique_lock<std::mutex>& lock, TimeNs longest) {
  const timespec timeout{.tv_sec = 0, .tv_nsec = static_cast<long>(longest)};
  lock.unlock();
  static_cast<void>(ppoll(pollers_.data(), pollers_.size(), &timeout, nullptr));
  lock.lock();
  // A device may have been removed meanwhile.
  for (const pollfd& poller : pollers_)
    for (RunningDevice* const device : devices_)
      if (poller.revents != 0 && poller.fd == device->port_descriptor()) device->expect_news();
}

/// The switch announces direct links, and its end, on this descriptor.
void ProgressThread::watch_switch(const RunningDevice& device) {
  if (const int descriptor = device.port_descriptor(); descriptor >= 0)
    pollers_.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
}

/// Sleeps until work is posted, frames arrive or a timer is due. A port without a descriptor is polled at
/// intervals.
void ProgressThread::sleep(std::unique_lock<std::mutex>& lock, TimeNs idle_ns) {
  asleep_.store(true, std::memory_order_seq_cst);
  bool all_have_rx_descriptor = true;
  pollers_.assign(1, pollfd{.fd = event_.get(), .events = POLLIN, .revents = 0});
  for (RunningDevice* device : devices_) {
    const int descriptor = device->await_work(*this);
    all_have_rx_descriptor &= descriptor >= 0 || device->has_own_threads();
    if (descriptor >= 0) pollers_.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
    watch_switch(*device);
  }
  const Rounds rounds = serve_devices();
  if (!rounds.busy && !stop_) {
    const TimeNs now = monotonic_ns();
    const TimeNs longest =
        all_have_rx_descriptor && !rounds.driven ? kRungForSleepNs : idle_backoff_ns(idle_ns, kFirstNapNs);
    nap(lock, std::min(longest, rounds.deadline > now ? rounds.deadline - now : 0));
  }
  wake_up();
  for (RunningDevice* device : devices_) device->stop_awaiting_work();
}

void ProgressThread::run() {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
  pthread_setname_np(pthread_self(), "fl-progress");
  register_this_thread();

  TimeNs last_busy = 0;
  std::unique_lock lock(mutex_);
  while (!stop_ && !abandoned_.load(std::memory_order_relaxed)) {
    const Rounds rounds = serve_devices();
    const TimeNs now = monotonic_ns();
    if (rounds.busy) last_busy = now;
    if (now - last_busy < kLingerNs) {
      // Lets other threads add and remove devices.
      lock.unlock();
      sched_yield();
      lock.lock();
    } else if (rounds.driven) {
      // The driving thread is not disturbed more often than that.
      asleep_.store(true, std::memory_order_seq_cst);
      pollers_.assign(1, pollfd{.fd = event_.get(), .events = POLLIN, .revents = 0});
      for (const RunningDevice* const device : devices_) watch_switch(*device);
      if (!stop_) nap(lock, driven_nap_ns(now - last_busy));
      wake_up();
    } else {
      sleep(lock, now - last_busy);
    }
  }
}

}  // namespace faultline::glue
