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
  const ErrnoKept kept;
  int value = 0;
  socklen_t length = sizeof value;
  return syscall(SYS_getsockopt, socket, level, name, &value, &length) == 0 ? value : -1;
}
void set_socket_option(int socket, int level, int name, int value) {
  const ErrnoKept kept;
  syscall(SYS_setsockopt, socket, level, name, &value, sizeof value);
}

bool is_at_any_address(int socket) {
  const ErrnoKept kept;
  return unbound(socket).is_unbound;
}

bool is_tcp_or_udp(int socket) {
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
  const SocketAddress address = address_in_family(now.address.any.sa_family, *own, 0, length);
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
