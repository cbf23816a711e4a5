// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace faultline::glue {

/// Frames that came to an interface and found no room in the rings of this process's packet sockets there:
/// what net_af_packet (DPDK 22.11) leaves out of its statistics.
[[nodiscard]] uint64_t packet_socket_drops(unsigned interface_index);

/// The packet sockets that this process has opened there, in the order in which it did.
[[nodiscard]] std::vector<int> packet_sockets_at(unsigned interface_index);

}  // namespace faultline::glue
