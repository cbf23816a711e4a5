// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/device/progress_thread.hpp"

#include <algorithm>

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "pmd_glue/device/cpu_contention.hpp"
#include "pmd_glue/device/running_device.hpp"
#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/engine/idle_backoff.hpp"
#include "stack/base/clock.hpp"
#include "stack/base/process/process_local.hpp"
#include "stack/base/process/service_thread.hpp"

namespace faultline::glue {
namespace {

// Polling continues for so long after the last frame: a wake-up costs more than the gaps in a stream.
constexpr TimeNs kProgressLingerNs = 200'000;
// While it has work, the thread offers its CPU to the program that often.
constexpr TimeNs kYieldNs = 20'000;
constexpr TimeNs kFirstProgressNapNs = 1'000'000;
// Longer than the kernel's tick: a timer that is not the next one to expire costs no access to the CPU's
// timer, which is dear in a virtual machine.
constexpr TimeNs kContendedNapNs = 5'000'000;
// A program that holds the engine needs the CPU, maybe this one, and so does a peer whose ring is full. A
// yield would give it away for a slice.
constexpr TimeNs kHeldNapNs = 10'000;
// The devices' ports are looked after that often at least.
constexpr TimeNs kShortRoundsNs = 10'000'000;
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
  Rounds rounds{
      .busy = false, .driven = false, .held = false, .stream = false, .deadline = now + kRungForSleepNs};
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

/// Returns whether frames of a wire have woken the thread, and nothing else.
bool ProgressThread::nap(std::unique_lock<std::mutex>& lock, TimeNs longest) {
  const timespec timeout{.tv_sec = 0, .tv_nsec = static_cast<long>(longest)};
  lock.unlock();
  static_cast<void>(ppoll(pollers_.data(), pollers_.size(), &timeout, nullptr));
  lock.lock();
  bool has_frames = false;
  bool has_others = false;
  for (const pollfd& poller : pollers_) {
    if (poller.revents == 0) continue;
    bool is_of_frames = false;
    // A device may have been removed meanwhile.
    for (RunningDevice* const device : devices_) {
      if (poller.fd == device->port_descriptor()) device->expect_news();
      if (poller.fd != device->frames_event()) continue;
      device->expect_frames();
      is_of_frames = true;
    }
    (is_of_frames ? has_frames : has_others) = true;
  }
  return has_frames && !has_others;
}

/// A turn for the devices whose frames have woken the thread, which stay armed: the way from the wake-up to
/// the next sleep is short, so the thread keeps its claim to pre-empt.
ProgressThread::Rounds ProgressThread::serve_rung_devices() {
  const TimeNs now = monotonic_ns();
  Rounds rounds{
      .busy = false, .driven = false, .held = false, .stream = false, .deadline = now + kContendedNapNs};
  for (RunningDevice* device : devices_) {
    if (device->has_own_threads()) continue;
    const RunningDevice::RungTurn turn = device->serve_rung();
    rounds.busy |= turn == RunningDevice::RungTurn::more;
    rounds.stream |= rounds.busy || turn == RunningDevice::RungTurn::stream;
    rounds.held |= turn == RunningDevice::RungTurn::held;
    rounds.deadline = std::min(rounds.deadline, rounds.held ? now + kHeldNapNs : device->next_deadline());
  }
  return rounds;
}

/// A frame of a peer on another CPU wakes the thread on that CPU, without an interrupt to the one on which
/// this process's program spins.
void ProgressThread::avoid_program() {
  for (const RunningDevice* const device : devices_)
    if (const int cpu = device->program_cpu(); cpu >= 0) return affinity_.avoid(cpu);
}

/// True if frames of every device wake the thread, so that none waits for the end of a long nap.
bool ProgressThread::are_on_wires() const {
  return std::ranges::all_of(devices_, [](const RunningDevice* device) {
    return device->has_own_threads() || device->frames_event() >= 0;
  });
}

/// The switch announces direct links, and its end, on this descriptor.
void ProgressThread::watch_switch(const RunningDevice& device) {
  if (const int descriptor = device.port_descriptor(); descriptor >= 0)
    pollers_.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
}

/// Sleeps until work is posted, frames arrive or a timer is due. A port without a descriptor is polled at
/// intervals.
/// Returns whether frames have woken the thread.
bool ProgressThread::sleep(std::unique_lock<std::mutex>& lock, TimeNs idle_ns, CpuContention& contention) {
  const bool is_contended = contention.is_contended(monotonic_ns()) && are_on_wires();
  asleep_.store(true, std::memory_order_seq_cst);
  bool all_have_rx_descriptor = true;
  pollers_.assign(1, pollfd{.fd = event_.get(), .events = POLLIN, .revents = 0});
  for (RunningDevice* device : devices_) {
    const int descriptor = device->await_work(*this, is_contended);
    all_have_rx_descriptor &= descriptor >= 0 || device->has_own_threads();
    if (descriptor >= 0) pollers_.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
    watch_switch(*device);
  }
  Rounds rounds = serve_devices();
  bool was_rung = rounds.busy;
  const TimeNs latest = monotonic_ns() + kShortRoundsNs;
  while (!rounds.busy && !stop_) {
    const TimeNs now = monotonic_ns();
    const TimeNs longest = is_contended ? kContendedNapNs
                           : all_have_rx_descriptor && !rounds.driven
                               ? kRungForSleepNs
                               : idle_backoff_ns(idle_ns, kFirstProgressNapNs);
    const TimeNs shortest = is_contended ? kHeldNapNs : 0;
    const TimeNs left = rounds.deadline > now ? rounds.deadline - now : 0;
    const bool only_frames = nap(lock, std::clamp(left, shortest, longest));
    was_rung |= only_frames;
    if (!is_contended || (!only_frames && !rounds.held) || now > latest) break;
    rounds = serve_rung_devices();
    if (!rounds.held) contention.note_wake(rounds.stream);
  }
  wake_up();
  for (RunningDevice* device : devices_) device->stop_awaiting_work();
  return was_rung;
}

/// Sleeps deaf to frames: the driving thread is not disturbed more often than that.
void ProgressThread::nap_beside_program(std::unique_lock<std::mutex>& lock, TimeNs idle_ns) {
  asleep_.store(true, std::memory_order_seq_cst);
  pollers_.assign(1, pollfd{.fd = event_.get(), .events = POLLIN, .revents = 0});
  for (const RunningDevice* const device : devices_) watch_switch(*device);
  if (!stop_) static_cast<void>(nap(lock, driven_nap_ns(idle_ns)));
  wake_up();
}

void ProgressThread::run() {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
  pthread_setname_np(pthread_self(), "fl-progress");
  register_this_thread();

  TimeNs last_busy = 0;
  TimeNs last_yield = 0;
  CpuContention contention;
  bool was_rung = true;  // frames came for the thread since its last sleep began
  std::unique_lock lock(mutex_);
  while (!stop_ && !abandoned_.load(std::memory_order_relaxed)) {
    const Rounds rounds = serve_devices();
    const TimeNs now = monotonic_ns();
    if (rounds.busy) last_busy = now;
    const bool is_contended = contention.is_contended(now) && are_on_wires();
    if (!is_contended) affinity_.restore();
    if (is_contended) {
      avoid_program();
      if (!rounds.busy && rounds.driven && !was_rung) {
        // The program polls and needs no thread: doorbells between the processes would cost both.
        nap_beside_program(lock, now - last_busy);
      } else if (!rounds.busy) {
        was_rung = sleep(lock, now - last_busy, contention);
      } else {
        was_rung = true;
        // Ends the contention, and so lets other threads add and remove devices.
        contention.note_wake(true);
        lock.unlock();
        lock.lock();
      }
    } else if (now - last_busy < kProgressLingerNs) {
      if (rounds.busy && now - last_yield < kYieldNs) continue;
      // Lets other threads add and remove devices.
      lock.unlock();
      sched_yield();
      last_yield = monotonic_ns();
      contention.note_round(now, last_yield);
      lock.lock();
    } else if (rounds.driven) {
      nap_beside_program(lock, now - last_busy);
    } else {
      static_cast<void>(sleep(lock, now - last_busy, contention));
    }
  }
}

}  // namespace faultline::glue
