// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/housekeeper.hpp"

#include <algorithm>
#include <chrono>

#include <pthread.h>
#include <signal.h>

#include "pmd_glue/device.hpp"
#include "pmd_glue/eal.hpp"

namespace faultline::glue {
namespace {

using namespace std::chrono_literals;
using transport::TimeNs;

// Polling goes on for so long after the last frame: a stream has gaps, and a wake-up costs more than this.
// Then sleeps, longer ones after a while without any frame.
constexpr TimeNs kLingerNs = 200'000;
constexpr TimeNs kRecentNs = 100'000'000;
constexpr auto kShortSleep = 1ms;
constexpr auto kLongSleep = 2ms;

}  // namespace

Housekeeper& Housekeeper::instance() {
  static Housekeeper& instance = *new Housekeeper;  // programs exit with devices open
  return instance;
}

void Housekeeper::add(Device& device) {
  const std::lock_guard guard(mutex_);
  devices_.push_back(&device);
  if (!thread_.joinable()) {
    stop_ = false;
    thread_ = std::thread([this] { run(); });
  }
  wake_.notify_one();
}

void Housekeeper::remove(Device& device) {
  std::thread ended;
  {
    const std::lock_guard guard(mutex_);
    std::erase(devices_, &device);
    if (devices_.empty() && thread_.joinable()) {
      stop_ = true;
      ended = std::move(thread_);
    }
    wake_.notify_one();
  }
  if (ended.joinable()) ended.join();
}

bool Housekeeper::serve_devices() {
  const TimeNs now = monotonic_ns();
  bool busy = false;
  for (Device* device : devices_) {
    device->maintain(now);
    busy |= device->housekeep();
  }
  return busy;
}

void Housekeeper::run() {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
  pthread_setname_np(pthread_self(), "fl-housekeeper");
  register_this_thread();

  TimeNs last_busy = 0;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const bool busy = serve_devices();
    const TimeNs now = monotonic_ns();
    if (busy) last_busy = now;
    if (now - last_busy < kLingerNs) {
      // Others may add and remove in between.
      lock.unlock();
      sched_yield();
      lock.lock();
    } else {
      wake_.wait_for(lock, now - last_busy < kRecentNs ? kShortSleep : kLongSleep, [this] { return stop_; });
    }
  }
}

}  // namespace faultline::glue
