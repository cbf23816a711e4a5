// SPDX-License-Identifier: BSD-3-Clause
// Which programs of this one's address have a port of TCP or UDP. To the kernel all addresses of a wire are
// one host's, so it cannot tell a second server of one host from a server of another.
#pragma once

#include <cstdint>

#include <netinet/in.h>

namespace faultline::abi {

/// A port at 0.0.0.0 or `::`, and at this program's own address.
struct WirePort {
  int protocol = 0;            ///< of socket(2): IPPROTO_TCP, IPPROTO_MPTCP or IPPROTO_UDP
  in_port_t port = 0;          ///< network byte order
  uint32_t own_ipv4 = 0;       ///< the program's address on the wire, in host byte order
  bool is_ipv6_alone = false;  ///< of IPV6_V6ONLY: not a port of IPv4; the own address is ipv6_stand_in()
};

enum class PortHolder : uint8_t {
  none,         ///< no program of this address
  any_address,  ///< one of this address has it at 0.0.0.0 or `::`
  own_address,  ///< one of this address has it there alone
};

/// Asks the sockets of this process, then those of the processes that $FAULTLINE_WIRE gives the same address.
/// Sockets of other users' processes are not seen. Takes milliseconds; for a bind(2) that the kernel refuses.
/// Async-signal-safe; allocates nothing; changes errno.
[[nodiscard]] PortHolder port_holder(const WirePort& port);

/// Whether a socket listens at the own address of `port`, and none at `localhost`: 127.0.0.1 in its
/// IPv4-mapped form, or `::1`. Reads the kernel's tables, whoever's the sockets are. Async-signal-safe;
/// allocates nothing; changes errno.
[[nodiscard]] bool listens_at_own_address_alone(const WirePort& port, const in6_addr& localhost);

}  // namespace faultline::abi
