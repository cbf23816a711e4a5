// SPDX-License-Identifier: BSD-3-Clause
#include "odp/fault_handler.hpp"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <mutex>

#include <ucontext.h>

#include "odp/tolerant_atomic.hpp"
#include "odp/tolerant_copy.hpp"

namespace faultline::odp {
namespace {

/// An action that ours replaced. Never freed: a handler on another thread may be reading it.
struct SavedAction {
  struct sigaction action;
  SavedAction* older;
};

std::atomic<SavedAction*> saved_segv{nullptr};
std::atomic<SavedAction*> saved_bus{nullptr};
std::mutex install_mutex;

std::atomic<SavedAction*>& saved_for(int signal_number) {
  return signal_number == SIGSEGV ? saved_segv : saved_bus;
}

/// The chained call under way on this thread, to notice a handler that chains back to us. Initial-exec: a
/// signal handler must not run the allocating kind of TLS access.
struct ChainMark {
  const void* context;
  uintptr_t frame;
};
__attribute__((tls_model("initial-exec"))) thread_local ChainMark chain_mark{nullptr, 0};

void take_default_action(int signal_number, const siginfo_t* info) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(signal_number, &action, nullptr);
  // A fault repeats when the instruction is run again; a signal that was sent must be sent again.
  if (info->si_code <= 0) raise(signal_number);
}

void call_chained(const SavedAction& saved, int signal_number, siginfo_t* info, void* context) {
  const struct sigaction& action = saved.action;
  if ((action.sa_flags & SA_SIGINFO) == 0) {
    if (action.sa_handler == SIG_IGN && info->si_code <= 0) return;
    // sigaction(2): the kernel does not let a program ignore its own fault.
    if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
      take_default_action(signal_number, info);
      return;
    }
  }
  sigset_t mask = action.sa_mask;
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &mask, &before);
  if ((action.sa_flags & SA_NODEFER) != 0) {
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, signal_number);
    pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
  }
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal_number, info, context);
  } else {
    action.sa_handler(signal_number);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void handle_fault(int signal_number, siginfo_t* info, void* context) {
  auto* machine = static_cast<ucontext_t*>(context);
  const auto instruction = static_cast<uintptr_t>(machine->uc_mcontext.gregs[REG_RIP]);
  if (info->si_code > 0) {
    for (const std::span<const FaultRange> ranges : {tolerant_copy_ranges(), tolerant_atomic_ranges()}) {
      for (const FaultRange& range : ranges) {
        if (instruction >= range.begin && instruction < range.end) {
          machine->uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(range.fixup);
          return;
        }
      }
    }
  }

  const SavedAction* saved = saved_for(signal_number).load(std::memory_order_acquire);
  const auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  // Same context deeper on the stack: the handler we chained to has called us as its own predecessor.
  const bool chained_back = chain_mark.context == context && frame < chain_mark.frame;
  if (chained_back && saved != nullptr) saved = saved->older;
  if (saved == nullptr) {
    take_default_action(signal_number, info);
    return;
  }
  const ChainMark outer = chain_mark;
  chain_mark = {context, frame};
  call_chained(*saved, signal_number, info, context);
  chain_mark = outer;
}

void install_one(int signal_number) {
  struct sigaction current {};
  sigaction(signal_number, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == handle_fault) return;
  std::atomic<SavedAction*>& saved = saved_for(signal_number);
  saved.store(new SavedAction{current, saved.load(std::memory_order_relaxed)}, std::memory_order_release);
  struct sigaction ours {};
  ours.sa_sigaction = handle_fault;
  // SA_RESTART as the interrupted copy never is a system call, and a chained handler's choice cannot be known
  // per call.
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigemptyset(&ours.sa_mask);
  sigaction(signal_number, &ours, nullptr);
}

}  // namespace

void install_fault_handler() {
  const std::lock_guard lock(install_mutex);
  install_one(SIGSEGV);
  install_one(SIGBUS);
}

void unblock_fault_signals() {
  sigset_t faults;
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  sigaddset(&faults, SIGBUS);
  pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
}

}  // namespace faultline::odp
