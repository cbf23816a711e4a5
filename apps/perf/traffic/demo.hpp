// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace faultline::perf {

/// Two processes of this program joined by net_memif, no root, no huge pages, no NIC: WRITE, READ and SEND on
/// on-demand regions, every byte verified, one table. The exit status.
[[nodiscard]] int run_demo();

}  // namespace faultline::perf
