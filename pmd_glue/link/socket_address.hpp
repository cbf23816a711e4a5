// SPDX-License-Identifier: BSD-3-Clause
// GIDs as the addresses of IP sockets.
#pragma once

#include <cstdint>
#include <cstring>

#include <netinet/in.h>

#include "stack/wire/packet/headers.hpp"

namespace faultline::glue {

/// An address of either family, with its length for the kernel.
struct SocketAddress {
  union {
    sockaddr any;
    sockaddr_in ipv4;
    sockaddr_in6 ipv6;
  };
  socklen_t length_bytes;
};

/// `scope` is the interface of an IPv6 link-local address (ipv6(7)).
inline SocketAddress socket_address_of(const wire::Gid& gid, uint16_t port, uint32_t scope = 0) {
  SocketAddress address{};
  if (gid.is_ipv4()) {
    address.ipv4 = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(gid.ipv4())}, .sin_zero = {}};
    address.length_bytes = sizeof address.ipv4;
    return address;
  }
  address.ipv6 = {.sin6_family = AF_INET6,
                  .sin6_port = htons(port),
                  .sin6_flowinfo = 0,
                  .sin6_addr = {},
                  .sin6_scope_id = scope};
  std::memcpy(&address.ipv6.sin6_addr, gid.bytes.data(), gid.bytes.size());
  address.length_bytes = sizeof address.ipv6;
  return address;
}

/// Returns the GID of an address of family AF_INET or AF_INET6.
inline wire::Gid gid_of(const sockaddr& address) {
  if (address.sa_family == AF_INET)
    return wire::Gid::from_ipv4(ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr));
  wire::Gid gid;
  std::memcpy(gid.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, gid.bytes.size());
  return gid;
}

}  // namespace faultline::glue
