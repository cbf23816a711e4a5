// SPDX-License-Identifier: BSD-3-Clause
// Addresses of this host: those of its kernel's interfaces.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pmd_glue/link/address_table.hpp"

namespace faultline::glue {

struct HostAddress {
  IpNetwork network;
  std::string interface;
};

/// Returns the interface that has the address, with the prefix length that it has there; nullopt if none has.
[[nodiscard]] std::optional<HostAddress> find_host_address(const wire::Gid& gid);

/// Returns the addresses that the default routes choose as a packet's source: of IPv4, then of IPv6. Empty if
/// the host has no default route.
[[nodiscard]] std::vector<wire::Gid> default_route_addresses();

/// Returns whether a UDP socket may be bound to the address now, at any port or at `udp_port`; if not, errno
/// has the reason. Allocates nothing.
[[nodiscard]] bool is_host_address(const wire::Gid& gid, uint16_t udp_port = 0);

}  // namespace faultline::glue
