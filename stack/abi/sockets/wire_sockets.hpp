// SPDX-License-Identifier: BSD-3-Clause
// Whether this process's sockets have the wire's addresses, and the source address of a socket that the
// program has not bound. Everything here may run in a signal handler and in a vfork child, and before this
// library's constructors. Nothing changes errno.
#pragma once

#include <atomic>
#include <cstdint>

#include "stack/abi/sockets/wire_address.hpp"

namespace faultline::abi {

enum class SocketDecision : uint8_t { unknown, off, on };
inline constinit std::atomic<SocketDecision> socket_decision{SocketDecision::unknown};
/// Reads the environment. Threads that do so at the same time find the same.
[[nodiscard]] bool decide_on_sockets();

/// True for a program on a wire ($FAULTLINE_WIRE) unless $FAULTLINE_WIRE_SOCKETS is "off". The first call
/// reads the environment; the others cost a load.
[[nodiscard]] inline bool are_sockets_on_wire() {
  const SocketDecision decision = socket_decision.load(std::memory_order_acquire);
  if (decision == SocketDecision::off) return false;
  return decision == SocketDecision::on || decide_on_sockets();
}

/// Returns this program's address on the wire, in host byte order; 0 if it is unknown.
[[nodiscard]] uint32_t own_wire_address();

/// Returns a socket's option of type int; -1 if the kernel has none.
[[nodiscard]] int socket_option(int socket, int level, int name);
void set_socket_option(int socket, int level, int name, int value);

/// True for a socket at 0.0.0.0 or `::`, with a port or without.
[[nodiscard]] bool is_at_any_address(int socket);

/// True for a socket of TCP or UDP. False for one that a library preloaded after this one implements
/// (rsockets), whose number the kernel does not have as a socket: such a library knows the wire's addresses.
[[nodiscard]] bool is_tcp_or_udp(int socket);

/// Binds an unbound socket to this program's own address before it connects to a wire's address. Otherwise
/// the peer would see 127.0.0.1. The kernel still chooses the port at connect(2). Does nothing if the address
/// is unknown or the kernel refuses.
void bind_to_own_address(int socket);

/// Returns the loopback form of this program's own address, in network byte order, if a datagram of this
/// socket would otherwise come from 127.0.0.1; 0 if the socket is bound to an address, or the own address is
/// unknown.
[[nodiscard]] in_addr_t source_of_datagrams(int socket);

}  // namespace faultline::abi
