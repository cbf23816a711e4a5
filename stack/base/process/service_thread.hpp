// SPDX-License-Identifier: BSD-3-Clause
// Set-up that the pager's and the monitor's threads share.
#pragma once

#include <thread>
#include <utility>

#include "stack/base/process/kernel_signals.hpp"
#include "stack/base/process/signals_blocked.hpp"

namespace faultline {

/// Starts a thread that handles no signal of the program, from its first instruction on. A handler that ran
/// there and called exit() would wait for its own thread. The signals of the thread's own faults stay
/// unblocked.
template <typename Function>
[[nodiscard]] std::thread start_service_thread(Function function) {
  const SignalsBlocked blocked;
  return std::thread([function = std::move(function)]() mutable {
    change_mask(SIG_UNBLOCK, kFaultSignals | signal_bit(SIGILL) | signal_bit(SIGFPE));
    function();
  });
}

/// Names the calling thread, blocks the program's signals in it, and sets its timer slack to 1 ns. Puts it
/// under SCHED_FIFO if `realtime` is set and the system permits it. Returns true if it runs under SCHED_FIFO.
bool prepare_service_thread(const char* name, bool realtime);

}  // namespace faultline
