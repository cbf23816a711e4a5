// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/sockets/wire_sockets.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stack/base/process/errno_kept.hpp"
#include "stack/verbs/objects/wire_address.hpp"

namespace faultline::abi {
namespace {

/// Host byte order; 0: unknown. Stored before the decision.
constinit std::atomic<uint32_t> g_requested{0};

/// Returns the loopback form of the program's own address; nullopt if it is unknown.
std::optional<uint32_t> own_address() {
  return loopback_of(own_wire_address());
}

/// The socket's own address and port, if that address is none in particular.
struct Unbound {
  bool is_unbound = false;
  in_port_t port = 0;
  SocketAddress address{};
};
Unbound unbound(int socket) {
  Unbound found;
  SocketAddress& address = found.address;
  socklen_t length = sizeof address;
  if (syscall(SYS_getsockname, socket, &address, &length) != 0) return found;
  if (address.any.sa_family == AF_INET) {
    found.is_unbound = address.ipv4.sin_addr.s_addr == INADDR_ANY;
    found.port = address.ipv4.sin_port;
  } else if (address.any.sa_family == AF_INET6) {
    found.is_unbound = IN6_IS_ADDR_UNSPECIFIED(&address.ipv6.sin6_addr);
    found.port = address.ipv6.sin6_port;
  }
  return found;
}

/// Returns the address, in the family of `like`, with port 0; its length is in `length`.
SocketAddress address_of(uint32_t ipv4, const SocketAddress& like, socklen_t& length) {
  SocketAddress address{};
  if (like.any.sa_family == AF_INET) {
    address.ipv4 = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(ipv4)}, .sin_zero = {}};
    length = sizeof address.ipv4;
    return address;
  }
  address.ipv6 = {};
  address.ipv6.sin6_family = AF_INET6;
  address.ipv6.sin6_addr.s6_addr16[5] = 0xffff;
  address.ipv6.sin6_addr.s6_addr32[3] = htonl(ipv4);
  length = sizeof address.ipv6;
  return address;
}

}  // namespace

bool decide_on_sockets() {
  const ErrnoKept kept;
  const char* const wire = secure_getenv("FAULTLINE_WIRE");
  const char* const wanted = secure_getenv("FAULTLINE_WIRE_SOCKETS");
  const bool on = wire != nullptr && (wanted == nullptr || std::strcmp(wanted, "off") != 0);
  if (on) g_requested.store(requested_address(wire), std::memory_order_relaxed);
  socket_decision.store(on ? SocketDecision::on : SocketDecision::off, std::memory_order_release);
  return on;
}

uint32_t own_wire_address() {
  const uint32_t attached = verbs::wire_address();
  return attached != 0 ? attached : g_requested.load(std::memory_order_relaxed);
}

// The C library's functions of these names are interposed on, or a library preloaded after this one has them.
int socket_option(int socket, int level, int name) {
  int value = 0;
  socklen_t length = sizeof value;
  return syscall(SYS_getsockopt, socket, level, name, &value, &length) == 0 ? value : -1;
}
void set_socket_option(int socket, int level, int name, int value) {
  syscall(SYS_setsockopt, socket, level, name, &value, sizeof value);
}

bool is_at_any_address(int socket) {
  return unbound(socket).is_unbound;
}

bool is_tcp_or_udp(int socket) {
  const ErrnoKept kept;
  const int protocol = socket_option(socket, SOL_SOCKET, SO_PROTOCOL);
  return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_MPTCP;
}

void bind_to_own_address(int socket) {
  const ErrnoKept kept;
  const auto own = own_address();
  if (!own) return;
  const Unbound now = unbound(socket);
  if (!now.is_unbound || now.port != 0) return;
  socklen_t length = 0;
  const SocketAddress address = address_of(*own, now.address, length);
  // Without the option, a bind takes a port for this socket alone, of which there are few (ip(7)).
  const bool is_set = socket_option(socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT) == 1;
  if (!is_set) set_socket_option(socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  syscall(SYS_bind, socket, &address, length);
  if (!is_set) set_socket_option(socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 0);
}

in_addr_t source_of_datagrams(int socket) {
  const ErrnoKept kept;
  const auto own = own_address();
  return own && unbound(socket).is_unbound ? htonl(*own) : 0;
}

}  // namespace faultline::abi
