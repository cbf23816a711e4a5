// SPDX-License-Identifier: BSD-3-Clause
// Raises a signal right before a chosen instruction of this program. The CPU's trap flag finds the addresses;
// the signal is a breakpoint instruction (INT3) placed there once. For one thread at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

extern "C" {
// Defined by the linker, for the program itself.
extern char __executable_start;
extern char etext;
}

namespace faultline::odp::test {

#if defined(__x86_64__)

class Interruption {
 public:
  /// False under a sanitizer: its runtime is part of the program, and its handlers would hit the breakpoint.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr bool kIsPossible = false;
#else
  static constexpr bool kIsPossible = true;
#endif

  /// Returns the addresses of this program's instructions that call() executes, each once, in order.
  template <typename Call>
  static std::vector<uintptr_t> places(Call call) {
    Interruption interruption;
    current_ = &interruption;
    constexpr unsigned long long kTrapFlag = 0x100;
    __writeeflags(__readeflags() | kTrapFlag);
    call();
    __writeeflags(__readeflags() & ~kTrapFlag);
    current_ = nullptr;
    return interruption.places_;
  }

  /// Runs call(), and runs act() in a signal handler right before the instruction at `place`. Returns false
  /// if that instruction was never reached.
  template <typename Call>
  static bool at(uintptr_t place, Call call, std::function<void()> act) {
    Interruption interruption;
    interruption.act_ = std::move(act);
    interruption.patch(place);
    current_ = &interruption;
    call();
    current_ = nullptr;
    if (!interruption.interrupted_) interruption.restore();
    return interruption.interrupted_;
  }

  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

 private:
  static constexpr uint8_t kBreakpoint = 0xcc;

  Interruption() {
    struct sigaction action {};
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, &before_);
  }
  ~Interruption() {
    sigaction(SIGTRAP, &before_, nullptr);
  }

  static void on_trap(int, siginfo_t* info, void* context) {
    if (current_ == nullptr) return;
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    const auto at = static_cast<uintptr_t>(registers[REG_RIP]);
    if (info->si_code == TRAP_TRACE) {
      if (at >= reinterpret_cast<uintptr_t>(&__executable_start) &&
          at < reinterpret_cast<uintptr_t>(&etext) &&
          std::find(current_->places_.begin(), current_->places_.end(), at) == current_->places_.end())
        current_->places_.push_back(at);
      return;
    }
    current_->interrupted_ = true;
    current_->restore();
    // The kernel may instead have moved the instruction pointer to an abort address (rseq).
    if (at == current_->place_ + 1) registers[REG_RIP] = static_cast<greg_t>(current_->place_);
    if (current_->act_) current_->act_();
  }

  void patch(uintptr_t place) {
    place_ = place;
    protect(PROT_READ | PROT_WRITE | PROT_EXEC);
    auto* const byte = reinterpret_cast<volatile uint8_t*>(place);
    original_ = *byte;
    *byte = kBreakpoint;
  }
  void restore() {
    *reinterpret_cast<volatile uint8_t*>(place_) = original_;
    protect(PROT_READ | PROT_EXEC);
  }
  void protect(int protection) const {
    constexpr uintptr_t kPage = 4096;
    auto* const page = reinterpret_cast<void*>(place_ & ~(kPage - 1));
    if (mprotect(page, kPage, protection) != 0) throw std::runtime_error("text cannot be patched");
  }

  static inline Interruption* current_ = nullptr;

  struct sigaction before_ {};
  std::vector<uintptr_t> places_;
  std::function<void()> act_;
  uintptr_t place_ = 0;
  uint8_t original_ = 0;
  bool interrupted_ = false;
};

#else

/// Other CPUs have no trap flag that a program may set.
class Interruption {
 public:
  static constexpr bool kIsPossible = false;
  template <typename Call>
  static std::vector<uintptr_t> places(Call /*call*/) {
    return {};
  }
  template <typename Call>
  static bool at(uintptr_t /*place*/, Call /*call*/, std::function<void()> /*act*/) {
    return false;
  }
};

#endif

}  // namespace faultline::odp::test
