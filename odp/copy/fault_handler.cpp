// SPDX-License-Identifier: BSD-3-Clause
#include "odp/copy/fault_handler.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <utility>

#include <ucontext.h>

#include "odp/copy/fault_signals.hpp"
#include "odp/copy/instruction_pointer.hpp"
#include "odp/copy/tolerant_atomic.hpp"
#include "odp/copy/tolerant_copy.hpp"
#include "odp/copy/tolerant_copy_crc.hpp"
#include "stack/base/process/fork_mutex.hpp"
#include "stack/base/process/kernel_signals.hpp"
#include "stack/base/process/saved_action.hpp"
#include "stack/base/process/signals_blocked.hpp"

namespace faultline::odp {
namespace {

/// Our handler has several entries. An entry that the program replaced without our knowledge (a raw system
/// call, a library that bypasses the hooks) may still be called as the replacement's predecessor. The next
/// entry is then installed in front. Each entry represents the action that it replaced.
constexpr int kEntries = 8;

/// Saved actions, one slot per entry; handlers read a slot while other threads set it.
struct SavedActions {
  std::array<SavedAction, kEntries> by_entry;
  std::atomic<int> last_entry{-1};
};
constinit SavedActions saved_segv;
constinit SavedActions saved_bus;

SavedActions& saved_for(int signal_number) {
  return signal_number == SIGSEGV ? saved_segv : saved_bus;
}

/// The process whose table of actions the slots describe; 0: none yet. A vfork child writes to its parent's
/// memory, but has its own table.
constinit std::atomic<long> owner{0};
bool is_owner() {
  const long process = owner.load(std::memory_order_acquire);
  return process != 0 && process == syscall(SYS_getpid);
}

/// Which of the two fault signals the program's mask for each signal's handler contains. The kernel's mask
/// contains neither: a verbs call in such a handler copies, too.
constinit std::array<std::atomic<SignalBits>, kSignals + 1> masked_in_handler{};

/// A fork waits for it, so that the child inherits whole actions.
constinit ForkMutex install_mutex;

/// Chained calls in progress, to detect a handler that chains back to us. A context lies on its thread's
/// stack and thus identifies the call's thread. Thread-local data is unsuitable: a signal handler must not
/// use the allocating model, and a late dlopen has no room for the other. The marks are reused cyclically,
/// since a handler may leave by siglongjmp.
struct ChainMark {
  std::atomic<const void*> context{nullptr};
  std::atomic<uintptr_t> frame{0};
  std::atomic<int> entry{0};
};
constexpr size_t kChainMarks = 256;
std::array<ChainMark, kChainMarks> chain_marks;
std::atomic<size_t> next_chain_mark{0};

ChainMark& mark_chained(const void* context, uintptr_t frame, int entry) {
  ChainMark& mark = chain_marks[next_chain_mark.fetch_add(1, std::memory_order_relaxed) % kChainMarks];
  mark.frame.store(frame, std::memory_order_relaxed);
  mark.entry.store(entry, std::memory_order_relaxed);
  mark.context.store(context, std::memory_order_release);
  return mark;
}

/// Returns the lowest entry whose saved action was called with this context further up the stack: that
/// action, or one below, has called us as its own predecessor. kEntries if there is none.
int lowest_chained(const void* context, uintptr_t frame) {
  int lowest = kEntries;
  for (const ChainMark& mark : chain_marks)
    if (mark.context.load(std::memory_order_acquire) == context &&
        frame < mark.frame.load(std::memory_order_relaxed))
      lowest = std::min(lowest, mark.entry.load(std::memory_order_relaxed));
  return lowest;
}

void take_default_action(int signal_number, const siginfo_t* info) {
  const KernelAction fall_back = to_kernel({});
  kernel_sigaction(signal_number, &fall_back, nullptr);
  // A fault repeats when the instruction is executed again. A signal that was sent must be sent again, and
  // so must the report of a memory error elsewhere (sigaction(2), BUS_MCEERR_AO).
  if (info->si_code <= 0 || (signal_number == SIGBUS && info->si_code == BUS_MCEERR_AO))
    syscall(SYS_tgkill, syscall(SYS_getpid), syscall(SYS_gettid), signal_number);
}

void call_chained(const struct sigaction& action, int signal_number, siginfo_t* info, void* context) {
  SignalBits mask = bits_of(action.sa_mask);
  const SignalBits before = change_mask(SIG_BLOCK, mask);
  if ((action.sa_flags & SA_NODEFER) != 0 && (mask & signal_bit(signal_number)) == 0)
    change_mask(SIG_UNBLOCK, signal_bit(signal_number));
  // The handler runs with one of the two signals blocked, and may make a verbs call.
  note_mask_change();
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal_number, info, context);
  } else {
    action.sa_handler(signal_number);
  }
  change_mask(SIG_SETMASK, before);
}

bool is_default(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}
bool is_ignored(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN;
}

void chain(int entry, int signal_number, siginfo_t* info, void* context) {
  const auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  const int lowest = lowest_chained(context, frame);
  entry = std::min(entry, lowest - 1);
  if (entry < 0) return take_default_action(signal_number, info);
  SavedAction& slot = saved_for(signal_number).by_entry[static_cast<size_t>(entry)];
  const SavedAction::Seen seen = slot.load();
  const struct sigaction& action = seen.action;
  if (is_ignored(action) && info->si_code <= 0) return;
  // sigaction(2): the kernel does not let a program ignore its own fault.
  if (is_default(action) || is_ignored(action)) return take_default_action(signal_number, info);
  // If a handler chains back to us, an action in progress is called again: it is reset once.
  if ((static_cast<unsigned>(action.sa_flags) & SA_RESETHAND) != 0 && lowest == kEntries) {
    struct sigaction reset = action;
    reset.sa_handler = SIG_DFL;
    reset.sa_flags &= ~SA_SIGINFO;
    const SignalsBlocked blocked;
    slot.replace(seen, reset);
  }
  ChainMark& mark = mark_chained(context, frame, entry);
  call_chained(action, signal_number, info, context);
  const void* ours = context;
  mark.context.compare_exchange_strong(ours, nullptr, std::memory_order_relaxed);
}

void handle_fault(int entry, int signal_number, siginfo_t* info, void* context) {
  auto* machine = static_cast<ucontext_t*>(context);
  const uintptr_t instruction = instruction_of(*machine);
  if (info->si_code > 0) {
    for (const std::span<const FaultRange> ranges :
         {restart_ranges(), tolerant_copy_ranges(), tolerant_copy_crc_ranges(), tolerant_atomic_ranges()}) {
      for (const FaultRange& range : ranges) {
        if (instruction >= range.begin && instruction < range.end) {
          go_on_at(*machine, range.fixup);
          return;
        }
      }
    }
  }
  const int error = errno;
  if (info->si_code > 0 || !keep_for_end_of_turn(signal_number, *info))
    chain(entry, signal_number, info, context);
  errno = error;
}

template <int entry>
void enter_at(int signal_number, siginfo_t* info, void* context) {
  handle_fault(entry, signal_number, info, context);
}
using Handler = void (*)(int, siginfo_t*, void*);
constexpr auto kHandlers = []<int... entries>(std::integer_sequence<int, entries...>) {
  return std::array<Handler, sizeof...(entries)>{enter_at<entries>...};
}
(std::make_integer_sequence<int, kEntries>{});

/// Returns the entry that an action belongs to; -1 if it is not ours.
int entry_of(const KernelAction& action) {
  if ((action.flags & SA_SIGINFO) == 0) return -1;
  for (size_t i = 0; i < kHandlers.size(); ++i)
    if (action.handler == reinterpret_cast<uint64_t>(kHandlers[i])) return static_cast<int>(i);
  return -1;
}

/// Returns our handler with the flags that only the kernel can apply for the program's handler. A handler
/// without SA_ONSTACK may need more room than the alternate stack has. A default or ignored action needs no
/// room, so it gets both flags.
KernelAction entry_for(int entry, const struct sigaction& chained) {
  unsigned flags = SA_SIGINFO;
  flags |= is_default(chained) || is_ignored(chained)
               ? static_cast<unsigned>(SA_ONSTACK | SA_RESTART)
               : static_cast<unsigned>(chained.sa_flags) & static_cast<unsigned>(SA_ONSTACK | SA_RESTART);
  return {.handler = reinterpret_cast<uint64_t>(kHandlers[static_cast<size_t>(entry)]),
          .flags = flags | kHasRestorer,
          .restorer = restorer(),
          .mask = 0};
}

/// Installs the next entry in front of an action that is not ours, and saves `current` in its slot. Signals
/// are blocked.
void put_in_front(int signal_number, const KernelAction& current) {
  SavedActions& saved = saved_for(signal_number);
  const int entry = std::min(saved.last_entry.load(std::memory_order_relaxed) + 1, kEntries - 1);
  saved.last_entry.store(entry, std::memory_order_relaxed);
  KernelAction expected = current;
  for (;;) {
    const struct sigaction chained = from_kernel(expected);
    saved.by_entry[static_cast<size_t>(entry)].exchange(chained);
    const KernelAction ours = entry_for(entry, chained);
    KernelAction replaced{};
    if (kernel_sigaction(signal_number, &ours, &replaced) != 0) return;
    if (replaced == expected || entry_of(replaced) >= 0) return;
    expected = replaced;  // another thread set it meanwhile
  }
}

void install_one(int signal_number) {
  const SignalsBlocked blocked;
  KernelAction current{};
  if (kernel_sigaction(signal_number, nullptr, &current) != 0) return;
  const int entry = entry_of(current);
  if (entry >= 0) {
    saved_for(signal_number).last_entry.store(entry, std::memory_order_relaxed);
  } else {
    put_in_front(signal_number, current);
  }
}

/// Removes the fault signals from the masks of handlers that were installed before the first copy.
void open_handler_masks() {
  const SignalsBlocked blocked;
  for (int number = 1; number <= kSignals; ++number) {
    KernelAction current{};
    if (number == SIGSEGV || number == SIGBUS || kernel_sigaction(number, nullptr, &current) != 0) continue;
    while ((current.mask & kFaultSignals) != 0 && current.handler > 1) {
      masked_in_handler[static_cast<size_t>(number)].store(current.mask & kFaultSignals);
      KernelAction opened = current;
      opened.mask &= ~kFaultSignals;
      KernelAction replaced{};
      if (kernel_sigaction(number, &opened, &replaced) != 0 || replaced == current) break;
      current = replaced;  // another thread set it meanwhile
    }
  }
}

void set_program_action(int signal_number, const struct sigaction* action, struct sigaction& previous) {
  const SignalsBlocked blocked;
  SavedActions& saved = saved_for(signal_number);
  KernelAction current{};
  kernel_sigaction(signal_number, nullptr, &current);
  int entry = entry_of(current);
  previous = entry >= 0 ? saved.by_entry[static_cast<size_t>(entry)].load().action : from_kernel(current);
  if (action == nullptr) return;
  // The program got this action from a call that bypassed the hooks.
  if (const int restored = entry_of(to_kernel(*action)); restored >= 0) {
    const KernelAction ours =
        entry_for(restored, saved.by_entry[static_cast<size_t>(restored)].load().action);
    kernel_sigaction(signal_number, &ours, nullptr);
    saved.last_entry.store(restored, std::memory_order_relaxed);
    return;
  }
  struct sigaction kept = *action;
  kept.sa_mask = set_of(bits_of(kept.sa_mask) & ~(signal_bit(SIGKILL) | signal_bit(SIGSTOP)));
  if (entry < 0) {
    entry = std::min(saved.last_entry.load(std::memory_order_relaxed) + 1, kEntries - 1);
    saved.last_entry.store(entry, std::memory_order_relaxed);
    static_cast<void>(saved.by_entry[static_cast<size_t>(entry)].exchange(kept));
  } else {
    previous = saved.by_entry[static_cast<size_t>(entry)].exchange(kept);
  }
  if (const KernelAction ours = entry_for(entry, kept); ours != current)
    kernel_sigaction(signal_number, &ours, nullptr);
}

/// Restores the program's mask of a handler; the kernel has only a part.
void complete_mask(int signal_number, KernelAction& action) {
  if (action.handler > 1) action.mask |= masked_in_handler[static_cast<size_t>(signal_number)].load();
}

}  // namespace

void install_fault_handler() {
  const std::lock_guard lock(install_mutex);
  install_one(SIGSEGV);
  install_one(SIGBUS);
  const long process = syscall(SYS_getpid);
  if (owner.exchange(process, std::memory_order_acq_rel) != process) open_handler_masks();
}

void own_signals_in_child() {
  if (owner.load(std::memory_order_relaxed) == 0) return;
  owner.store(syscall(SYS_getpid), std::memory_order_relaxed);
  for (SavedActions* saved : {&saved_segv, &saved_bus})
    for (SavedAction& slot : saved->by_entry) slot.forget_writers();
}

int program_sigaction(int signal_number, const struct sigaction* action, struct sigaction* old) {
  // sigaction(2); 32 and 33 are the C library's own.
  if (signal_number < 1 || signal_number > kSignals || signal_number == 32 || signal_number == 33) {
    errno = EINVAL;
    return -1;
  }
  const bool is_fault = (signal_bit(signal_number) & kFaultSignals) != 0;
  const bool owned = is_owner();
  if (is_fault && owned) {
    struct sigaction previous {};
    set_program_action(signal_number, action, previous);
    if (old != nullptr) *old = previous;
    return 0;
  }
  KernelAction wanted{};
  if (action != nullptr) wanted = to_kernel(*action);
  const SignalBits masked = wanted.mask & kFaultSignals;
  if (owned) wanted.mask &= ~kFaultSignals;
  KernelAction replaced{};
  if (kernel_sigaction(signal_number, action != nullptr ? &wanted : nullptr, &replaced) != 0) return -1;
  complete_mask(signal_number, replaced);
  if (owned && action != nullptr) masked_in_handler[static_cast<size_t>(signal_number)].store(masked);
  if (old == nullptr) return 0;
  *old = from_kernel(replaced);
  // A vfork child has the parent's handler until it sets one.
  if (const int entry = is_fault ? entry_of(replaced) : -1; entry >= 0)
    *old = saved_for(signal_number).by_entry[static_cast<size_t>(entry)].load().action;
  return 0;
}

}  // namespace faultline::odp
