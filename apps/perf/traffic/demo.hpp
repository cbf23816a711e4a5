// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace faultline::perf {

/// Runs two processes of this program, connected by net_memif, without root, huge pages or a NIC. They run
/// WRITE, READ and SEND on on-demand regions, verify every byte and print one table. Returns the exit status.
[[nodiscard]] int run_demo();

}  // namespace faultline::perf
