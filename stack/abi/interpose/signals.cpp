// SPDX-License-Identifier: BSD-3-Clause
// The C library's names by which a program sets a handler or its signal mask, in libfaultline.so. Handlers of
// SIGSEGV and SIGBUS are stored for our handler to call (fault_handler.hpp). A mask is set unchanged, and the
// next turn checks whether it must unblock the fault signals (fault_signals.hpp). Semantics are those of
// glibc's functions.
#include <array>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdlib>

#include <dlfcn.h>
#include <ucontext.h>

#include "odp/copy/fault_handler.hpp"
#include "odp/copy/fault_signals.hpp"
#include "stack/abi/interpose/next_call.hpp"
#include "stack/abi/interpose/program_range.hpp"
#include "stack/base/process/kernel_signals.hpp"

namespace {

using faultline::bits_of;
using faultline::kFaultSignals;
using faultline::set_of;
using faultline::signal_bit;
using faultline::SignalBits;
using faultline::abi::fail_with;
using faultline::odp::note_mask_change;
using faultline::odp::program_sigaction;

/// Signals 32 and 33 are reserved by the C library; no program may block them.
constexpr SignalBits kInternalSignals = signal_bit(32) | signal_bit(33);
/// siginterrupt(3): signals whose handlers signal() installs without SA_RESTART.
constinit std::atomic<SignalBits> interrupting{0};
constexpr int kNoRestart = 0x2000'0000;  // SA_INTERRUPT, which the kernel ignores

bool is_signal(int number) {
  return number >= 1 && number <= faultline::kSignals;
}

/// Returns 0 or an errno value.
int set_mask(int how, const sigset_t* set, sigset_t* old) {
  SignalBits wanted = set == nullptr ? 0 : bits_of(*set) & ~kInternalSignals;
  SignalBits before = 0;
  const bool may_block = how != SIG_UNBLOCK && (wanted & kFaultSignals) != 0;
  // Before as well as after: a handler that runs in between may make a verbs call.
  if (may_block) note_mask_change();
  const int error = errno;
  const long failed =
      syscall(SYS_rt_sigprocmask, how, set == nullptr ? nullptr : &wanted, &before, sizeof before);
  const int problem = failed == 0 ? 0 : errno;
  errno = error;
  if (may_block) note_mask_change();
  if (problem == 0 && old != nullptr) *old = set_of(before);
  return problem;
}

/// Returns 0, or -1 with errno.
int set_mask_with_errno(int how, const sigset_t* set, sigset_t* old) {
  const int problem = set_mask(how, set, old);
  return problem == 0 ? 0 : fail_with(problem);
}

sighandler_t set_handler(int number, sighandler_t handler, SignalBits mask, int flags) {
  if (handler == SIG_ERR || !is_signal(number)) {
    errno = EINVAL;
    return SIG_ERR;
  }
  struct sigaction action {};
  struct sigaction old {};
  action.sa_handler = handler;
  action.sa_mask = set_of(mask);
  action.sa_flags = flags;
  return program_sigaction(number, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

/// signal(2) with BSD semantics, which glibc uses by default.
sighandler_t bsd_semantics(int number, sighandler_t handler) {
  if (!is_signal(number)) return set_handler(number, handler, 0, 0);
  const SignalBits bit = signal_bit(number);
  return set_handler(number, handler, bit,
                     (interrupting.load(std::memory_order_relaxed) & bit) != 0 ? 0 : SA_RESTART);
}

/// signal(2) with System V semantics, as with _XOPEN_SOURCE without _DEFAULT_SOURCE.
sighandler_t sysv_semantics(int number, sighandler_t handler) {
  return set_handler(number, handler, 0, static_cast<int>(SA_RESETHAND) | SA_NODEFER | kNoRestart);
}

/// longjmp restores the mask in the buffer, and setcontext that in the context, inside the C library.
void note_saved_mask(const sigset_t& saved) {
  if ((bits_of(saved) & kFaultSignals) != 0) note_mask_change();
}

using Jump = void(__jmp_buf_tag*, int);
enum JumpName : size_t { kLongjmp, kUnderscoreLongjmp, kSiglongjmp, kCheckedLongjmp, kJumpNames };
constexpr std::array<const char*, kJumpNames> kJumps{"longjmp", "_longjmp", "siglongjmp", "__longjmp_chk"};
constinit std::array<std::atomic<Jump*>, kJumpNames> jumps{};
using SetContext = int(const ucontext_t*);
using SwapContext = int(ucontext_t*, const ucontext_t*);
constinit std::atomic<SetContext*> next_setcontext{nullptr};
constinit std::atomic<SwapContext*> next_swapcontext{nullptr};

template <typename Function>
Function* next_call(std::atomic<Function*>& known, const char* name) {
  Function* function = known.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
    if (function == nullptr) std::abort();  // the C library always has it
    known.store(function, std::memory_order_relaxed);
  }
  return function;
}

/// Runs early: a handler must not look up a symbol.
__attribute__((constructor)) void look_up_jumps() {
  for (size_t i = 0; i < kJumpNames; ++i) static_cast<void>(next_call(jumps[i], kJumps[i]));
  static_cast<void>(next_call(next_setcontext, "setcontext"));
  static_cast<void>(next_call(next_swapcontext, "swapcontext"));
}

[[noreturn]] void jump(JumpName name, __jmp_buf_tag* buffer, int value) {
  if (buffer->__mask_was_saved != 0) note_saved_mask(buffer->__saved_mask);
  next_call(jumps[name], kJumps[name])(buffer, value);
  std::abort();
}

}  // namespace

FAULTLINE_CALL int sigaction(int number, const struct sigaction* action, struct sigaction* old) noexcept {
  return program_sigaction(number, action, old);
}

FAULTLINE_CALL sighandler_t signal(int number, sighandler_t handler) noexcept {
  return bsd_semantics(number, handler);
}
FAULTLINE_CALL sighandler_t bsd_signal(int number, sighandler_t handler) noexcept {
  return bsd_semantics(number, handler);
}
FAULTLINE_CALL sighandler_t ssignal(int number, sighandler_t handler) noexcept {
  return bsd_semantics(number, handler);
}
FAULTLINE_CALL sighandler_t __sysv_signal(int number, sighandler_t handler) noexcept {
  return sysv_semantics(number, handler);
}
FAULTLINE_CALL sighandler_t sysv_signal(int number, sighandler_t handler) noexcept {
  return sysv_semantics(number, handler);
}

FAULTLINE_CALL int siginterrupt(int number, int interrupts) noexcept {
  struct sigaction action {};
  if (program_sigaction(number, nullptr, &action) != 0) return -1;
  if (interrupts != 0) {
    interrupting.fetch_or(signal_bit(number), std::memory_order_relaxed);
    action.sa_flags &= ~SA_RESTART;
  } else {
    interrupting.fetch_and(~signal_bit(number), std::memory_order_relaxed);
    action.sa_flags |= SA_RESTART;
  }
  return program_sigaction(number, &action, nullptr);
}

/// sigset(3): with SIG_HOLD it blocks the signal and keeps its action; otherwise it unblocks the signal.
FAULTLINE_CALL sighandler_t sigset(int number, sighandler_t disposition) noexcept {
  if (!is_signal(number)) {
    errno = EINVAL;
    return SIG_ERR;
  }
  const sigset_t one = set_of(signal_bit(number));
  sigset_t before{};
  if (disposition == SIG_HOLD) {
    if (set_mask_with_errno(SIG_BLOCK, &one, &before) != 0) return SIG_ERR;
    if ((bits_of(before) & signal_bit(number)) != 0) return SIG_HOLD;
    struct sigaction action {};
    return program_sigaction(number, nullptr, &action) == 0 ? action.sa_handler : SIG_ERR;
  }
  const sighandler_t old = set_handler(number, disposition, 0, 0);
  if (old == SIG_ERR || set_mask_with_errno(SIG_UNBLOCK, &one, &before) != 0) return SIG_ERR;
  return (bits_of(before) & signal_bit(number)) != 0 ? SIG_HOLD : old;
}
FAULTLINE_CALL int sigignore(int number) noexcept {
  return set_handler(number, SIG_IGN, 0, 0) == SIG_ERR ? -1 : 0;
}
FAULTLINE_CALL int sighold(int number) noexcept {
  if (!is_signal(number)) return fail_with(EINVAL);
  const sigset_t one = set_of(signal_bit(number));
  return set_mask_with_errno(SIG_BLOCK, &one, nullptr);
}
FAULTLINE_CALL int sigrelse(int number) noexcept {
  if (!is_signal(number)) return fail_with(EINVAL);
  const sigset_t one = set_of(signal_bit(number));
  return set_mask_with_errno(SIG_UNBLOCK, &one, nullptr);
}

FAULTLINE_CALL int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return set_mask(how, set, old);
}
FAULTLINE_CALL int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return set_mask_with_errno(how, set, old);
}
/// BSD masks hold the first 32 signals.
FAULTLINE_CALL int sigblock(int mask) noexcept {
  const sigset_t set = set_of(static_cast<uint32_t>(mask));
  sigset_t before{};
  if (set_mask_with_errno(SIG_BLOCK, &set, &before) != 0) return -1;
  return static_cast<int>(bits_of(before));
}
FAULTLINE_CALL int sigsetmask(int mask) noexcept {
  const sigset_t set = set_of(static_cast<uint32_t>(mask));
  sigset_t before{};
  if (set_mask_with_errno(SIG_SETMASK, &set, &before) != 0) return -1;
  return static_cast<int>(bits_of(before));
}

// Declared with separate labels: with _FORTIFY_SOURCE the header maps two functions to one name.
#define FAULTLINE_JUMP(function, name)                                                   \
  FAULTLINE_CALL __attribute__((noreturn)) void function(__jmp_buf_tag*, int) asm(name); \
  void function(__jmp_buf_tag* buffer, int value)

FAULTLINE_JUMP(faultline_longjmp, "longjmp") {
  jump(kLongjmp, buffer, value);
}
FAULTLINE_JUMP(faultline_underscore_longjmp, "_longjmp") {
  jump(kUnderscoreLongjmp, buffer, value);
}
FAULTLINE_JUMP(faultline_siglongjmp, "siglongjmp") {
  jump(kSiglongjmp, buffer, value);
}
FAULTLINE_JUMP(faultline_checked_longjmp, "__longjmp_chk") {
  jump(kCheckedLongjmp, buffer, value);
}

FAULTLINE_CALL int setcontext(const ucontext_t* context) noexcept {
  note_saved_mask(context->uc_sigmask);
  return next_call(next_setcontext, "setcontext")(context);
}
FAULTLINE_CALL int swapcontext(ucontext_t* from, const ucontext_t* to) noexcept {
  note_saved_mask(to->uc_sigmask);
  return next_call(next_swapcontext, "swapcontext")(from, to);
}
