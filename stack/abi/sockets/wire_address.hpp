// SPDX-License-Identifier: BSD-3-Clause
// The loopback address that stands for a wire's address in the kernel's TCP and UDP: 127.18.a.b for
// 198.18.a.b, 127.19.a.b for 198.19.a.b. The kernel has no route to a wire, while all of 127.0.0.0/8 is
// local.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <netinet/in.h>
#include <sys/socket.h>

namespace faultline::abi {

/// A socket address of either IP family.
union SocketAddress {
  sockaddr any;
  sockaddr_in ipv4;
  sockaddr_in6 ipv6;
};

/// Returns an IPv4 address (host byte order) and a port (network byte order) as a socket of `family` names
/// them: AF_INET, or AF_INET6 with an IPv4-mapped address. The length for the kernel is in `length`.
[[nodiscard]] SocketAddress address_in_family(sa_family_t family, uint32_t ipv4, in_port_t port,
                                              socklen_t& length);

/// Returns the loopback address of a wire's address; nullopt for any other. Host byte order.
[[nodiscard]] constexpr std::optional<uint32_t> loopback_of(uint32_t ipv4) {
  constexpr uint32_t kNetworkMask = 0xfffe0000;
  constexpr uint32_t kWires = 0xc6120000;  // 198.18.0.0/15
  constexpr uint32_t kFirstByte = 0xff000000;
  constexpr uint32_t kLoopback = 0x7f000000;
  if ((ipv4 & kNetworkMask) != kWires) return std::nullopt;
  return (ipv4 & ~kFirstByte) | kLoopback;
}

/// Returns the wire's address of a loopback address; nullopt for any other. Host byte order.
[[nodiscard]] constexpr std::optional<uint32_t> wire_address_of(uint32_t ipv4) {
  constexpr uint32_t kChange = 0x7f000000 ^ 0xc6000000;
  const uint32_t candidate = ipv4 ^ kChange;
  return loopback_of(candidate) == ipv4 ? std::optional(candidate) : std::nullopt;
}

/// Returns the IPv4-mapped form of an address in host byte order (RFC 4291, 2.5.5.2).
[[nodiscard]] in6_addr ipv4_mapped(uint32_t ipv4);

/// Returns the address that stands for a program on a wire where only IPv6 counts: its IPv4 address, in host
/// byte order, in 2001:2::/48, which is for benchmarks as 198.18.0.0/15 is (RFC 5180, 8). Nobody has a route
/// to it.
[[nodiscard]] in6_addr ipv6_stand_in(uint32_t ipv4);

/// Writes the loopback form of a wire's address, also of an IPv4-mapped one, to `mapped`. Returns its length;
/// 0 if the address is any other, or has a length that the kernel refuses. `address` needs no alignment.
[[nodiscard]] socklen_t to_loopback(const sockaddr* address, socklen_t length, SocketAddress& mapped);

/// Replaces the loopback form by the wire's address. `length` is the number of valid bytes; an address that
/// ends before its IPv4 part is left alone.
void to_wire_address(sockaddr* address, socklen_t length);

/// The same for addresses in the control messages of a datagram (ip(7), ipv6(7)): those of packet
/// information, and of the original destination. An address that is cut off is left alone.
void control_to_wire_address(msghdr& message);
/// The reverse, for a message that is sent: the source that packet information names.
void control_to_loopback(msghdr& message);

/// Returns the own address that the text of $FAULTLINE_WIRE requests, in host byte order; 0 if the wire
/// assigns one. Allocates nothing.
[[nodiscard]] uint32_t requested_address(std::string_view request);

}  // namespace faultline::abi
