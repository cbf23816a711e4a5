// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/sockets/shared_port.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <sys/syscall.h>

#include "stack/abi/sockets/wire_sockets.hpp"
#include "stack/base/process/errno_kept.hpp"

namespace faultline::abi {
namespace {

/// Whether a socket asks for its port at 0.0.0.0, at `::` with IPv4, or at the loopback form of its own
/// address.
bool is_own_or_any(int socket, const SocketAddress& address, uint32_t own_loopback) {
  if (address.any.sa_family == AF_INET) {
    const uint32_t ipv4 = ntohl(address.ipv4.sin_addr.s_addr);
    return ipv4 == INADDR_ANY || ipv4 == own_loopback;
  }
  if (address.any.sa_family != AF_INET6) return false;
  const in6_addr& ipv6 = address.ipv6.sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&ipv6)) return ntohl(ipv6.s6_addr32[3]) == own_loopback;
  return IN6_IS_ADDR_UNSPECIFIED(&ipv6) && socket_option(socket, IPPROTO_IPV6, IPV6_V6ONLY) == 0;
}

void set_shares(int socket, bool shares) {
  set_socket_option(socket, SOL_SOCKET, SO_REUSEPORT, shares ? 1 : 0);
}

int bind_to(const PortBind& bind, const SocketAddress& address) {
  return static_cast<int>(syscall(SYS_bind, bind.socket, &address, bind.length));
}

/// The address of `bind`, with this program's own instead of any.
SocketAddress own_place(const PortBind& bind) {
  SocketAddress address = bind.address;
  const in_addr_t own = htonl(*loopback_of(bind.wanted.own_ipv4));
  if (address.any.sa_family == AF_INET) {
    address.ipv4.sin_addr.s_addr = own;
  } else {
    address.ipv6.sin6_addr = {};
    address.ipv6.sin6_addr.s6_addr16[5] = 0xffff;
    address.ipv6.sin6_addr.s6_addr32[3] = own;
  }
  return address;
}

/// The kernel has refused the port: what a host of its own would do.
int bind_as_own_host(const PortBind& bind) {
  const PortHolder holder = port_holder(bind.wanted);
  const bool may_share = holder == PortHolder::none || bind.shares_by_itself;
  if (may_share) {
    set_shares(bind.socket, true);
    if (bind_to(bind, holder == PortHolder::any_address ? bind.address : own_place(bind)) == 0) return 0;
    set_shares(bind.socket, bind.shares_by_itself);
  }
  errno = EADDRINUSE;
  return -1;
}

}  // namespace

PortBind begin_bind(int socket, const sockaddr* address, socklen_t length) {
  const ErrnoKept kept;
  PortBind bind;
  bind.socket = socket;
  const uint32_t own_ipv4 = own_wire_address();
  const auto own_loopback = loopback_of(own_ipv4);
  if (!own_loopback || address == nullptr || length < sizeof(sockaddr_in)) return bind;
  bind.length = std::min<socklen_t>(length, sizeof bind.address);
  std::memcpy(&bind.address, address, bind.length);
  const bool is_whole =
      bind.address.any.sa_family == AF_INET || bind.length >= offsetof(sockaddr_in6, sin6_scope_id);
  // The port is at the same place in both families.
  if (!is_whole || bind.address.ipv4.sin_port == 0 || !is_tcp_or_udp(socket) ||
      !is_own_or_any(socket, bind.address, *own_loopback))
    return bind;
  bind.wanted = {.protocol = socket_option(socket, SOL_SOCKET, SO_PROTOCOL),
                 .port = bind.address.ipv4.sin_port,
                 .own_ipv4 = own_ipv4};
  bind.shares_by_itself = socket_option(socket, SOL_SOCKET, SO_REUSEPORT) == 1;
  // Receivers of a group share its port, whatever host they are on.
  if (bind.shares_by_itself && bind.wanted.protocol != IPPROTO_UDP) set_shares(socket, false);
  return bind;
}

int end_bind(const PortBind& bind, int result) {
  if (bind.wanted.protocol == 0) return result;
  if (result != 0 && errno == EADDRINUSE) return bind_as_own_host(bind);
  const ErrnoKept kept;
  const bool is_udp = bind.wanted.protocol == IPPROTO_UDP;
  if (bind.shares_by_itself || (result == 0 && is_udp)) set_shares(bind.socket, true);
  return result;
}

void share_listening_port(int socket) {
  const ErrnoKept kept;
  if (own_wire_address() != 0 && is_at_any_address(socket) && is_tcp_or_udp(socket)) set_shares(socket, true);
}

}  // namespace faultline::abi
