// SPDX-License-Identifier: BSD-3-Clause
// A blocked SIGSEGV or SIGBUS that a fault raises ends the process (signal(7)). A program may block both
// around its own work, so a turn unblocks them and restores the program's mask when it ends.
// Outside turns the kernel has the mask that the program set: queries, sigwait(3), signalfd(2), inheritance
// and siglongjmp(3) need no special handling.
#pragma once

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>

#include "stack/base/process/kernel_signals.hpp"

namespace faultline::odp {

/// Counts calls of all threads that may have blocked one of the two signals.
inline constinit std::atomic<uint32_t> mask_changes{1};
/// Value of mask_changes when this thread last found both signals unblocked.
inline thread_local constinit uint32_t mask_changes_seen = 0;

/// Call before and after any call that may block one of the two signals in the calling thread. Safe in a
/// handler.
inline void note_mask_change() {
  mask_changes.fetch_add(1, std::memory_order_relaxed);
}

/// State of the two signals in the thread that has a turn. leave() must be called on the thread of enter().
class TurnSignals {
 public:
  /// Unblocks those that the program has blocked. Costs a comparison while no thread blocks either signal.
  void enter() {
    if (mask_changes_seen != mask_changes.load(std::memory_order_relaxed)) [[unlikely]]
      open();
  }
  /// Restores the program's mask.
  void leave() {
    if (opened_ != 0) [[unlikely]]
      close();
  }

 private:
  void open();
  void close();

  SignalBits opened_ = 0;
};

/// Unblocks the signals for a scope, for copies outside turns.
class FaultSignalsOpen {
 public:
  FaultSignalsOpen() { signals_.enter(); }
  FaultSignalsOpen(const FaultSignalsOpen&) = delete;
  FaultSignalsOpen& operator=(const FaultSignalsOpen&) = delete;
  ~FaultSignalsOpen() { signals_.leave(); }

 private:
  TurnSignals signals_;
};

/// Call in the handler. Keeps a signal that was sent to a thread which the program believes to block it; the
/// signal is sent again at the end of the turn. Returns false if the signal is to be handled now.
[[nodiscard]] bool keep_for_end_of_turn(int signal_number, const siginfo_t& info);

/// Unblocks both permanently, in a thread of the library.
void unblock_fault_signals();

}  // namespace faultline::odp
