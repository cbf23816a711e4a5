// SPDX-License-Identifier: BSD-3-Clause
// What the pager's and the monitor's threads have in common.
#pragma once

namespace faultline::odp {

/// Names the calling thread, blocks the program's signals in it, makes its sleeps exact, and puts it under
/// SCHED_FIFO where wanted and allowed. True where it runs under SCHED_FIFO.
bool prepare_service_thread(const char* name, bool realtime);

}  // namespace faultline::odp
