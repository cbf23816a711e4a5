// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace faultline::glue {

/// Returns the frames that the interface received but the rings of this process's packet sockets had no room
/// for. net_af_packet (DPDK 22.11) omits them from its statistics.
[[nodiscard]] uint64_t packet_socket_drops(unsigned interface_index);

/// Returns the packet sockets that this process has opened on the interface, in the order of their creation.
[[nodiscard]] std::vector<int> packet_sockets_at(unsigned interface_index);

}  // namespace faultline::glue
