// SPDX-License-Identifier: BSD-3-Clause
#include "odp/fault_handler.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <mutex>

#include <dlfcn.h>
#include <ucontext.h>

#include "odp/tolerant_atomic.hpp"
#include "odp/tolerant_copy.hpp"
#include "odp/tolerant_copy_crc.hpp"

namespace faultline::odp {
namespace {

/// An action that ours replaced.
struct SavedAction {
  struct sigaction action;
  SavedAction* older;
};
/// Never freed, since a handler on another thread may be reading one, and not allocated, since a handler may
/// install another: used round and round.
SavedAction* next_saved() {
  constexpr size_t kSaved = 256;
  static std::array<SavedAction, kSaved> saved;
  static std::atomic<size_t> next{0};
  return &saved[next.fetch_add(1, std::memory_order_relaxed) % kSaved];
}

/// The C library's own, behind the library's name for the program (interpose.cpp).
using Sigaction = int (*)(int, const struct sigaction*, struct sigaction*);
Sigaction system_sigaction() {
  static std::atomic<Sigaction> found{nullptr};
  Sigaction function = found.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<Sigaction>(dlsym(RTLD_NEXT, "sigaction"));
    found.store(function, std::memory_order_relaxed);
  }
  return function;
}

std::atomic<SavedAction*> saved_segv{nullptr};
std::atomic<SavedAction*> saved_bus{nullptr};
std::atomic<bool> installed{false};
std::mutex install_mutex;

std::atomic<SavedAction*>& saved_for(int signal_number) {
  return signal_number == SIGSEGV ? saved_segv : saved_bus;
}

/// The chained calls under way, to notice a handler that chains back to us. A context lies on its thread's
/// stack, so that it says whose call it is: thread-local data would have to be of the kind that a late dlopen
/// has no room for, since a signal handler must not run the allocating one. Used round and round: a handler
/// may leave by siglongjmp.
struct ChainMark {
  std::atomic<const void*> context{nullptr};
  std::atomic<uintptr_t> frame{0};
};
constexpr size_t kChainMarks = 256;
std::array<ChainMark, kChainMarks> chain_marks;
std::atomic<size_t> next_chain_mark{0};

ChainMark& mark_chained(const void* context, uintptr_t frame) {
  ChainMark& mark = chain_marks[next_chain_mark.fetch_add(1, std::memory_order_relaxed) % kChainMarks];
  mark.frame.store(frame, std::memory_order_relaxed);
  mark.context.store(context, std::memory_order_release);
  return mark;
}

/// Same context deeper on the stack: the handler we chained to has called us as its own predecessor.
bool is_chained_back(const void* context, uintptr_t frame) {
  return std::any_of(chain_marks.begin(), chain_marks.end(), [&](const ChainMark& mark) {
    return mark.context.load(std::memory_order_acquire) == context &&
           frame < mark.frame.load(std::memory_order_relaxed);
  });
}

void take_default_action(int signal_number, const siginfo_t* info) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  system_sigaction()(signal_number, &action, nullptr);
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
    for (const std::span<const FaultRange> ranges :
         {restart_ranges(), tolerant_copy_ranges(), tolerant_copy_crc_ranges(), tolerant_atomic_ranges()}) {
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
  const bool chained_back = is_chained_back(context, frame);
  if (chained_back && saved != nullptr) saved = saved->older;
  if (saved == nullptr) {
    take_default_action(signal_number, info);
    return;
  }
  if ((saved->action.sa_flags & SA_RESETHAND) != 0 && !chained_back) {
    SavedAction* const once = next_saved();
    *once = {{}, saved->older};
    saved_for(signal_number).store(once, std::memory_order_release);
  }
  ChainMark& mark = mark_chained(context, frame);
  call_chained(*saved, signal_number, info, context);
  const void* ours = context;
  mark.context.compare_exchange_strong(ours, nullptr, std::memory_order_relaxed);
}

void install_one(int signal_number) {
  struct sigaction current {};
  system_sigaction()(signal_number, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == handle_fault) return;
  std::atomic<SavedAction*>& saved = saved_for(signal_number);
  SavedAction* const entry = next_saved();
  *entry = {current, saved.load(std::memory_order_relaxed)};
  saved.store(entry, std::memory_order_release);
  struct sigaction ours {};
  ours.sa_sigaction = handle_fault;
  // SA_RESTART as the interrupted copy never is a system call, and a chained handler's choice cannot be known
  // per call.
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigemptyset(&ours.sa_mask);
  system_sigaction()(signal_number, &ours, nullptr);
}

}  // namespace

void install_fault_handler() {
  const std::lock_guard lock(install_mutex);
  install_one(SIGSEGV);
  install_one(SIGBUS);
  installed.store(true, std::memory_order_release);
}

int program_sigaction(int signal_number, const struct sigaction* action, struct sigaction* old) {
  if ((signal_number != SIGSEGV && signal_number != SIGBUS) || !installed.load(std::memory_order_acquire))
    return system_sigaction()(signal_number, action, old);
  std::atomic<SavedAction*>& saved = saved_for(signal_number);
  SavedAction* const before = saved.load(std::memory_order_acquire);
  struct sigaction previous {};
  if (before != nullptr) previous = before->action;
  if (action != nullptr) {
    SavedAction* const entry = next_saved();
    *entry = {*action, before != nullptr ? before->older : nullptr};
    saved.store(entry, std::memory_order_release);
  }
  if (old != nullptr) *old = previous;
  return 0;
}

void unblock_fault_signals() {
  sigset_t faults;
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  sigaddset(&faults, SIGBUS);
  pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
}

}  // namespace faultline::odp
