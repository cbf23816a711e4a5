// SPDX-License-Identifier: BSD-3-Clause
// Addresses of simulated hosts.
#pragma once

#include <cstdint>

#include "stack/transport/shared/types.hpp"

namespace faultline::fabric {

/// The first host has the address after this one, 198.18.0.0 of the network for benchmarks (RFC 2544).
inline constexpr uint32_t kNetwork = 0xc6120000;

/// Returns the path of packets from one host to another. `port_seed` determines the UDP source port, by which
/// switches tell connections of two hosts apart (IBA A17.9.3.1, RFC 6335: the dynamic ports).
[[nodiscard]] inline transport::AddressVector path_between(uint32_t from, uint32_t to, uint64_t port_seed) {
  transport::AddressVector av;
  const auto mac = [](uint32_t host) {
    wire::MacAddress address;
    address.bytes = {0x02, 0x46, 0x4c, 0, static_cast<uint8_t>(host >> 8), static_cast<uint8_t>(host)};
    return address;
  };
  av.path.source_mac = mac(from);
  av.path.destination_mac = mac(to);
  av.path.source_gid = wire::Gid::from_ipv4(kNetwork + 1 + from);
  av.path.destination_gid = wire::Gid::from_ipv4(kNetwork + 1 + to);
  constexpr uint16_t kFirstDynamicPort = 0xc000;
  av.path.udp_source_port = static_cast<uint16_t>(kFirstDynamicPort | (port_seed & 0x3fff));
  return av;
}

}  // namespace faultline::fabric
