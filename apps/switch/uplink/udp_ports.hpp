// SPDX-License-Identifier: BSD-3-Clause
// The RoCE ports of the host's addresses, which the sockets of an uplink bind. A killed switch has them until
// the kernel has closed its sockets, and the next switch may start meanwhile.
#pragma once

#include "pmd_glue/config/config.hpp"

namespace faultline::switching {

/// Waits some seconds while another process has the port of an address. Other uplinks need no wait.
void await_udp_ports(const glue::DeviceConfig& uplink);

}  // namespace faultline::switching
