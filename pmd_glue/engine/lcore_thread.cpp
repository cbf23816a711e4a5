// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/lcore_thread.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/engine/idle_backoff.hpp"
#include "stack/base/clock.hpp"
#include "stack/base/log.hpp"
#include "stack/base/process/service_thread.hpp"

namespace faultline::glue {
namespace {

// Idle time before the first sleep: a wake-up costs more than the gaps in a stream.
constexpr TimeNs kIdleBeforeSleepNs = 500'000;
constexpr TimeNs kFirstLcoreNapNs = 50'000;
// Sleep limit if every source of work wakes the thread; a safety margin only.
constexpr TimeNs kToldNapNs = 20'000'000;
constexpr unsigned kMostReportsWithoutFrames = 16;
// Idle turns before a sched_yield(). It returns at once on a dedicated CPU; on a shared CPU the other thread
// does not wait for a whole time slice.
constexpr unsigned kIdleTurnsBeforeYield = 64;

void block_program_signals() {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
}

}  // namespace

LcoreThread::LcoreThread(std::string device, PollEngine& engine, odp::EngineSession& session,
                         std::optional<unsigned> cpu)
    : device_(std::move(device)),
      engine_(engine),
      session_(session),
      cpu_(cpu),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_(start_service_thread([this] { run(); })) {}

void LcoreThread::stop() {
  stop_.store(true, std::memory_order_seq_cst);
  on_doorbell();
  if (thread_.joinable()) thread_.join();
  // A caller may hold callers_ and wait, after the thread has ended: serve its call here.
  while (!callers_.try_lock()) {
    serve_call();
    sched_yield();
  }
  stopped_ = true;
  callers_.unlock();
}

void LcoreThread::abandon() {
  stop_.store(true, std::memory_order_seq_cst);
  on_doorbell();
}

void LcoreThread::call(void (*function)(void*), void* argument) {
  const std::lock_guard guard(callers_);
  if (stopped_) return function(argument);
  Call call{function, argument};
  mailbox_.store(&call, std::memory_order_seq_cst);
  on_doorbell();
  for (unsigned spins = 0; !call.done.load(std::memory_order_acquire); ++spins)
    if (spins > 64) sched_yield();
}

void LcoreThread::serve_call() {
  Call* call = mailbox_.exchange(nullptr, std::memory_order_acquire);
  if (call == nullptr) return;
  call->function(call->argument);
  call->done.store(true, std::memory_order_release);
}

void LcoreThread::run() {
  block_program_signals();
  if (cpu_) {
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(*cpu_, &cpu);
    if (const int failed = pthread_setaffinity_np(pthread_self(), sizeof cpu, &cpu); failed != 0)
      log().warn("{}: cannot run on lcore {}: {}", device_, *cpu_, std::strerror(failed));
  }
  register_this_thread();
  TimeNs last_moved = monotonic_ns();
  unsigned idle_turns = 0;
  bool has_slept = false;
  bool trusts_descriptor = true;
  unsigned reports_without_frames = 0;  // consecutive
  bool told = false;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (!engine_.turns().try_lock()) {
      sched_yield();
      continue;
    }
    if (mailbox_.load(std::memory_order_relaxed) != nullptr) {
      // A call allocates and frees memory. A thread that holds the allocator's lock may wait in munmap for
      // this engine (odp::EngineSession), so leave the session first. The turn enters again.
      session_.leave();
      serve_call();
    }
    // An interrupt is cleared before the turn that receives its frames, and each sleep arms it anew.
    if (has_slept && engine_.has_interrupts()) stop_listening();
    const bool moved = has_slept ? engine_.turn_after_sleep(told) : engine_.turn();
    has_slept = false;
    const TimeNs now = engine_.last_turn();
    // A readable descriptor earns some turns: net_tap looks for frames only after a signal. After a
    // descriptor that was readable without frames, the thread does not sleep on it until a frame arrives. An
    // interrupt may report frames from before it was armed.
    if (moved || told) last_moved = now;
    idle_turns = moved ? 0 : idle_turns + 1;
    if (moved) {
      trusts_descriptor = true;
      reports_without_frames = 0;
    } else if (told) {
      trusts_descriptor = engine_.has_interrupts() && ++reports_without_frames < kMostReportsWithoutFrames;
    }
    told = false;
    const bool faults = !moved && session_.has_outstanding_faults();
    const bool is_awake = faults || now - last_moved <= kIdleBeforeSleepNs;
    const TimeNs deadline = is_awake ? now : engine_.next_deadline();
    if (deadline <= now) {
      if (listening_) stop_listening();
      engine_.turns().unlock();
      if ((faults && session_.should_yield()) ||
          idle_turns % kIdleTurnsBeforeYield == kIdleTurnsBeforeYield - 1)
        sched_yield();
    } else if (!listening_) {
      listen();
      engine_.turns().unlock();
    } else {
      session_.leave();
      engine_.turns().unlock();
      const bool has_rx_descriptor = frames_ >= 0 && trusts_descriptor;
      const TimeNs longest =
          has_rx_descriptor ? kToldNapNs : idle_backoff_ns(now - last_moved, kFirstLcoreNapNs);
      told = nap(std::min(longest, deadline - now), has_rx_descriptor);
      has_slept = has_rx_descriptor;
    }
  }
  engine_.turns().lock();
  engine_.set_listener(nullptr);
  engine_.turns().unlock();
  session_.leave();
}

// Earlier work is found by the turn that follows.
void LcoreThread::listen() {
  listening_ = true;
  asleep_.store(true, std::memory_order_seq_cst);
  engine_.set_listener(this);
  frames_ = engine_.await_frames();
}

void LcoreThread::stop_listening() {
  listening_ = false;
  engine_.set_listener(nullptr);
  engine_.stop_awaiting_frames();
  asleep_.store(false, std::memory_order_relaxed);
}

void LcoreThread::on_doorbell() {
  // One wake-up is enough: later callers find the flag clear.
  if (!asleep_.load(std::memory_order_seq_cst) || !asleep_.exchange(false, std::memory_order_acq_rel)) return;
  const uint64_t one = 1;
  static_cast<void>(!write(event_.get(), &one, sizeof one));
}

bool LcoreThread::nap(TimeNs longest, bool has_rx_descriptor) {
  std::array<pollfd, 2> pollers{
      pollfd{.fd = event_.get(), .events = POLLIN, .revents = 0},
      pollfd{.fd = has_rx_descriptor ? frames_ : -1, .events = POLLIN, .revents = 0}};
  const timespec timeout{.tv_sec = 0, .tv_nsec = static_cast<long>(longest)};
  static_cast<void>(ppoll(pollers.data(), pollers.size(), &timeout, nullptr));
  uint64_t rings = 0;
  if (pollers[0].revents != 0) static_cast<void>(!read(event_.get(), &rings, sizeof rings));
  // Set before the next turn, which finds all work posted until now; later posts signal again.
  asleep_.store(true, std::memory_order_seq_cst);
  return pollers[1].revents != 0;
}

}  // namespace faultline::glue
