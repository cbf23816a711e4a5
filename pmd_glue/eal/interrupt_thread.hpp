// SPDX-License-Identifier: BSD-3-Clause
// Runs something on EAL's interrupt thread and waits for it. net_memif's control channel is served there, and
// what starts, stops or closes its port on another thread frees messages and channels that a handler is just
// using (DPDK 22.11, memif_socket.c).
#pragma once

#include <functional>

namespace faultline::glue {

/// Not to be called with a turn held, nor from the interrupt thread.
void run_on_interrupt_thread(std::function<void()> task);

/// Not waited for. Any thread may, with a turn held too.
void post_to_interrupt_thread(std::function<void()> task);

/// Before a fork: keeps the thread where it holds no lock of EAL's, for the child would find that locked for
/// ever. Waits for it, though not for long: what keeps it may wait for the caller.
void hold_interrupt_thread();
/// After the fork, in the parent.
void release_interrupt_thread();

}  // namespace faultline::glue
