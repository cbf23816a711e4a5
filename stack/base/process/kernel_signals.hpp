// SPDX-License-Identifier: BSD-3-Clause
// Bare system calls for signals. The library hooks the C library's functions of the same purpose. The hooks
// run before the C library has started, in signal handlers and in vfork children.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>

#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
/// Ends a handler: rt_sigreturn(2). Unwinders and debuggers recognise a signal frame by exactly these bytes.
extern "C" __attribute__((visibility("hidden"))) void faultline_restore_rt();
#endif

namespace faultline {

/// A signal set in the kernel's layout: bit n - 1 is signal n.
using SignalBits = uint64_t;

constexpr SignalBits signal_bit(int signal_number) {
  return SignalBits{1} << (signal_number - 1);
}
/// The signals that a fault during a copy raises.
constexpr SignalBits kFaultSignals = signal_bit(SIGSEGV) | signal_bit(SIGBUS);
constexpr int kSignals = 64;

/// Returns the kernel's set, which glibc keeps in the first word of its larger one.
inline SignalBits bits_of(const sigset_t& set) {
  return set.__val[0];
}
inline sigset_t set_of(SignalBits bits) {
  sigset_t set{};
  set.__val[0] = bits;
  return set;
}

/// The layout of struct sigaction that rt_sigaction(2) takes.
struct KernelAction {
  uint64_t handler;
  uint64_t flags;
  uint64_t restorer;
  SignalBits mask;
  friend bool operator==(const KernelAction&, const KernelAction&) = default;
};

#if defined(__x86_64__)
constexpr uint64_t kHasRestorer = 0x0400'0000;  // SA_RESTORER, which x86-64 requires
inline uint64_t restorer() {
  return reinterpret_cast<uint64_t>(&faultline_restore_rt);
}
#else
// The kernel's own code in the vDSO ends a handler; unwinders know it.
constexpr uint64_t kHasRestorer = 0;
inline uint64_t restorer() {
  return 0;
}
#endif

inline KernelAction to_kernel(const struct sigaction& action) {
  return {.handler = reinterpret_cast<uint64_t>(action.sa_handler),
          .flags = static_cast<uint32_t>(action.sa_flags) | kHasRestorer,
          .restorer = restorer(),
          .mask = bits_of(action.sa_mask)};
}
inline struct sigaction from_kernel(const KernelAction& kernel) {
  struct sigaction action {};
  action.sa_handler = reinterpret_cast<sighandler_t>(kernel.handler);
  action.sa_flags = static_cast<int>(kernel.flags);
  action.sa_mask = set_of(kernel.mask);
  action.sa_restorer = reinterpret_cast<void (*)()>(kernel.restorer);
  return action;
}

/// Calls rt_sigaction(2). Returns 0, or -1 with errno. Either pointer may be null.
inline int kernel_sigaction(int signal_number, const KernelAction* action, KernelAction* old) {
  return static_cast<int>(syscall(SYS_rt_sigaction, signal_number, action, old, sizeof(SignalBits)));
}

/// Changes the calling thread's mask and returns the previous one. `how` is that of sigprocmask(2).
inline SignalBits change_mask(int how, SignalBits bits) {
  SignalBits before = 0;
  syscall(SYS_rt_sigprocmask, how, &bits, &before, sizeof bits);
  return before;
}
inline SignalBits current_mask() {
  return change_mask(SIG_BLOCK, 0);
}

}  // namespace faultline
