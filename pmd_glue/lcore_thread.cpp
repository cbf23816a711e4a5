// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/lcore_thread.hpp"

#include <chrono>
#include <cstring>

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "pmd_glue/eal.hpp"

namespace faultline::glue {
namespace {

using transport::TimeNs;

constexpr TimeNs kIdleBeforeSleepNs = 1'000'000'000;
// An lcore that has its CPU for itself gets it back at once; where two share one, the other is not kept
// waiting for a whole time slice.
constexpr unsigned kIdleTurnsBeforeYield = 64;

void block_program_signals() {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
}

}  // namespace

LcoreThread::LcoreThread(std::string device, Engine& engine, odp::EngineSession& session,
                         std::optional<unsigned> cpu)
    : device_(std::move(device)), engine_(engine), session_(session), cpu_(cpu), thread_([this] { run(); }) {}

void LcoreThread::stop() {
  stop_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
  // A caller that came too late for the thread holds callers_ and waits.
  while (!callers_.try_lock()) {
    serve_call();
    sched_yield();
  }
  stopped_ = true;
  callers_.unlock();
}

void LcoreThread::call(void (*function)(void*), void* argument) {
  const std::lock_guard guard(callers_);
  if (stopped_) return function(argument);
  Call call{function, argument};
  mailbox_.store(&call, std::memory_order_release);
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
  while (!stop_.load(std::memory_order_relaxed)) {
    if (!engine_.turns().try_lock()) {
      sched_yield();
      continue;
    }
    if (mailbox_.load(std::memory_order_relaxed) != nullptr) serve_call();
    const bool moved = engine_.turn();
    const TimeNs now = engine_.last_turn();
    if (moved) last_moved = now;
    idle_turns = moved ? 0 : idle_turns + 1;
    const bool faults = !moved && session_.has_outstanding_faults();
    const bool sleep =
        !faults && now - last_moved > kIdleBeforeSleepNs && engine_.core().next_deadline() > now;
    if (sleep) session_.leave();
    engine_.turns().unlock();
    if (sleep)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    else if ((faults && session_.should_yield()) ||
             idle_turns % kIdleTurnsBeforeYield == kIdleTurnsBeforeYield - 1)
      sched_yield();
  }
  session_.leave();
}

}  // namespace faultline::glue
