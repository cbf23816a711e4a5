// SPDX-License-Identifier: BSD-3-Clause
#include "odp/copy/fault_signals.hpp"

namespace faultline::odp {
namespace {

/// A thread whose turn has unblocked signals, and the signals sent to it since. Not thread-local: the
/// handler reads this, and in a library that was opened late the first use of thread-local data allocates.
struct OpenTurn {
  struct Kept {
    siginfo_t info{};
    std::atomic<bool> full{false};
  };
  std::atomic<const void*> thread{nullptr};
  std::atomic<SignalBits> opened{0};
  Kept segv;
  Kept bus;
};
/// A thread that finds none free handles sent signals at once.
constinit std::array<OpenTurn, 64> open_turns;

OpenTurn* turn_of(const void* thread) {
  for (OpenTurn& turn : open_turns)
    if (turn.thread.load(std::memory_order_relaxed) == thread) return &turn;
  return nullptr;
}

void take_open_turn(const void* thread, SignalBits opened) {
  for (OpenTurn& turn : open_turns) {
    const void* nobody = nullptr;
    if (turn.thread.compare_exchange_strong(nobody, thread, std::memory_order_acquire)) {
      turn.opened.store(opened, std::memory_order_relaxed);
      return;
    }
  }
}

void send_again(int signal_number, OpenTurn::Kept& kept) {
  if (!kept.full.load(std::memory_order_acquire)) return;
  siginfo_t info = kept.info;
  kept.full.store(false, std::memory_order_relaxed);
  // tgkill(2) and pthread_kill(3) send to a thread, the others to the process.
  const long process = syscall(SYS_getpid);
  if (info.si_code == SI_TKILL)
    syscall(SYS_rt_tgsigqueueinfo, process, syscall(SYS_gettid), signal_number, &info);
  else
    syscall(SYS_rt_sigqueueinfo, process, signal_number, &info);
}

}  // namespace

[[gnu::cold]] void TurnSignals::open() {
  // Read before the mask: the next turn must see later changes.
  const uint32_t changes = mask_changes.load(std::memory_order_relaxed);
  const SignalBits blocked = current_mask() & kFaultSignals;
  const void* const self = __builtin_thread_pointer();
  OpenTurn* const outer = turn_of(self);
  if (blocked == 0) {
    // A signal that an outer turn has unblocked is blocked again when that turn ends.
    if (opened_ == 0 && outer == nullptr) mask_changes_seen = changes;
    return;
  }
  if (outer == nullptr) take_open_turn(self, blocked);
  opened_ |= blocked;
  change_mask(SIG_UNBLOCK, blocked);
}

[[gnu::cold]] void TurnSignals::close() {
  change_mask(SIG_BLOCK, opened_);
  opened_ = 0;
  OpenTurn* const turn = turn_of(__builtin_thread_pointer());
  if (turn == nullptr) return;
  send_again(SIGSEGV, turn->segv);
  send_again(SIGBUS, turn->bus);
  turn->thread.store(nullptr, std::memory_order_release);
}

bool keep_for_end_of_turn(int signal_number, const siginfo_t& info) {
  OpenTurn* const turn = turn_of(__builtin_thread_pointer());
  if (turn == nullptr || (turn->opened.load(std::memory_order_relaxed) & signal_bit(signal_number)) == 0)
    return false;
  OpenTurn::Kept& kept = signal_number == SIGSEGV ? turn->segv : turn->bus;
  // signal(7): at most one instance of a standard signal is pending.
  if (kept.full.load(std::memory_order_relaxed)) return true;
  kept.info = info;
  kept.full.store(true, std::memory_order_release);
  return true;
}

void unblock_fault_signals() {
  change_mask(SIG_UNBLOCK, kFaultSignals);
}

}  // namespace faultline::odp
