// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/uplink/udp_ports.hpp"

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "apps/switch/uplink/predecessor.hpp"
#include "pmd_glue/config/port_kinds.hpp"
#include "pmd_glue/link/host_address.hpp"
#include "stack/base/log.hpp"
#include "stack/wire/link/address_text.hpp"

namespace faultline::switching {

void await_udp_ports(const glue::DeviceConfig& uplink) {
  if (!glue::row_of(uplink.port.kind).has_host_addresses) return;
  const auto latest = std::chrono::steady_clock::now() + kPredecessorPatience;
  bool is_noted = false;
  for (const glue::IpNetwork& address : uplink.addresses)
    while (!glue::is_host_address(address.gid, wire::kRoceUdpPort) && errno == EADDRINUSE &&
           std::chrono::steady_clock::now() < latest) {
      if (!std::exchange(is_noted, true))
        log().warn("waits for UDP port {} of {}: another process has it", wire::kRoceUdpPort,
                   wire::text_of(address.gid));
      std::this_thread::sleep_for(kPredecessorPause);
    }
}

}  // namespace faultline::switching
