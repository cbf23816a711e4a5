// SPDX-License-Identifier: BSD-3-Clause
// The IP addresses in a switch's grant: one of the wire, or those of the host by an uplink of sockets.
#pragma once

#include <algorithm>
#include <vector>

#include "pmd_glue/link/address_table.hpp"
#include "pmd_glue/wires/switch_protocol.hpp"

namespace faultline::glue {

/// Returns the addresses in the order of the device's GIDs, without a link-local one.
[[nodiscard]] inline std::vector<IpNetwork> addresses_of(const SwitchGrant& grant) {
  if (grant.by_sockets == 0)
    return {{wire::Gid::from_ipv4(grant.ipv4), static_cast<uint8_t>(kIpv4PrefixBits + grant.prefix_bits)}};
  std::vector<IpNetwork> addresses;
  const size_t count = std::min<size_t>(grant.address_count, grant.addresses.size());
  for (size_t i = 0; i < count; ++i)
    addresses.push_back({wire::Gid{grant.addresses[i].gid}, grant.addresses[i].prefix_bits});
  return addresses;
}

}  // namespace faultline::glue
