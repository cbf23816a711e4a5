// SPDX-License-Identifier: BSD-3-Clause
// Runs something on EAL's interrupt thread and waits for it. net_memif's control channel is served there, and
// what starts, stops or closes its port on another thread frees messages and channels that a handler is just
// using (DPDK 22.11, memif_socket.c).
#pragma once

#include <functional>

namespace faultline::glue {

/// Not to be called with a turn held, nor from the interrupt thread.
void run_on_interrupt_thread(std::function<void()> task);

}  // namespace faultline::glue
