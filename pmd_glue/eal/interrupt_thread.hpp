// SPDX-License-Identifier: BSD-3-Clause
// Runs tasks on EAL's interrupt thread, which serves net_memif's control channel. A port that is started,
// stopped or closed on another thread would free messages and channels that a handler is using (DPDK 22.11,
// memif_socket.c).
#pragma once

#include <functional>

namespace faultline::glue {

/// Runs `task` and waits for it. Must not be called with a turn lock held, nor from the interrupt thread.
void run_on_interrupt_thread(std::function<void()> task);

/// Posts `task` and returns at once. Any thread, also with a turn lock held.
void post_to_interrupt_thread(std::function<void()> task);

/// Call before a fork. Parks the thread in a task, so that it holds no lock of EAL's: the child would find
/// that lock taken for ever. Waits at most 100 ms, since the thread may itself wait for the caller.
void hold_interrupt_thread();
/// Releases the thread after the fork, in the parent.
void release_interrupt_thread();

}  // namespace faultline::glue
