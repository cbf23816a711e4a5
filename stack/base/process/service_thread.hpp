// SPDX-License-Identifier: BSD-3-Clause
// What the pager's and the monitor's threads have in common.
#pragma once

#include <thread>
#include <utility>

#include "stack/base/process/kernel_signals.hpp"
#include "stack/base/process/signals_blocked.hpp"

namespace faultline {

/// A thread that takes no signal of the program's, from its first instruction on: a handler that runs there
/// and calls exit() would wait for its own thread. The signals of its own faults are open.
template <typename Function>
[[nodiscard]] std::thread start_service_thread(Function function) {
  const SignalsBlocked blocked;
  return std::thread([function = std::move(function)]() mutable {
    change_mask(SIG_UNBLOCK, kFaultSignals | signal_bit(SIGILL) | signal_bit(SIGFPE));
    function();
  });
}

/// Names the calling thread, blocks the program's signals in it, makes its sleeps exact, and puts it under
/// SCHED_FIFO where wanted and allowed. True where it runs under SCHED_FIFO.
bool prepare_service_thread(const char* name, bool realtime);

}  // namespace faultline
