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

/// Whether an address is 0.0.0.0, `::` or the loopback form of the own address.
bool is_own_or_any(const SocketAddress& address, uint32_t own_loopback) {
  if (address.any.sa_family == AF_INET) {
    const uint32_t ipv4 = ntohl(address.ipv4.sin_addr.s_addr);
    return ipv4 == INADDR_ANY || ipv4 == own_loopback;
  }
  if (address.any.sa_family != AF_INET6) return false;
  const in6_addr& ipv6 = address.ipv6.sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&ipv6)) return ntohl(ipv6.s6_addr32[3]) == own_loopback;
  return IN6_IS_ADDR_UNSPECIFIED(&ipv6);
}

void set_shares(int socket, bool shares) {
  set_socket_option(socket, SOL_SOCKET, SO_REUSEPORT, shares ? 1 : 0);
}

/// Asks the kernel for the port at the address that the program gave.
int bind_as_asked(const PortBind& bind) {
  return static_cast<int>(syscall(SYS_bind, bind.socket, &bind.address, bind.length));
}
/// Asks for it at this program's own address.
int bind_at_own_address(const PortBind& bind) {
  const WirePort& wanted = bind.wanted;
  socklen_t length = 0;
  SocketAddress own =
      address_in_family(bind.address.any.sa_family, *loopback_of(wanted.own_ipv4), wanted.port, length);
  if (!wanted.is_ipv6_alone) return static_cast<int>(syscall(SYS_bind, bind.socket, &own, length));
  own.ipv6.sin6_addr = ipv6_stand_in(wanted.own_ipv4);
  // No interface has that address, which the option permits (ip(7), IP_FREEBIND).
  const int before = socket_option(bind.socket, IPPROTO_IPV6, IPV6_FREEBIND);
  set_socket_option(bind.socket, IPPROTO_IPV6, IPV6_FREEBIND, 1);
  const auto result = static_cast<int>(syscall(SYS_bind, bind.socket, &own, length));
  set_socket_option(bind.socket, IPPROTO_IPV6, IPV6_FREEBIND, before);
  return result;
}

/// The kernel has refused the port: what a host of its own would do. Returns true if the socket has it.
bool bind_as_own_host(const PortBind& bind) {
  const ErrnoKept kept;
  const PortHolder holder = port_holder(bind.wanted);
  if (holder != PortHolder::none && !bind.shares_by_itself) return false;
  set_shares(bind.socket, true);
  if ((holder == PortHolder::any_address ? bind_as_asked(bind) : bind_at_own_address(bind)) == 0) return true;
  set_shares(bind.socket, bind.shares_by_itself);
  return false;
}

}  // namespace

PortBind begin_bind(int socket, const sockaddr* address, socklen_t length) {
  const ErrnoKept kept;
  PortBind bind;
  bind.socket = socket;
  bind.errno_before = errno;
  const uint32_t own_ipv4 = own_wire_address();
  const auto own_loopback = loopback_of(own_ipv4);
  if (!own_loopback || address == nullptr || length < sizeof(sockaddr_in)) return bind;
  bind.length = std::min<socklen_t>(length, sizeof bind.address);
  std::memcpy(&bind.address, address, bind.length);
  const bool is_whole =
      bind.address.any.sa_family == AF_INET || bind.length >= offsetof(sockaddr_in6, sin6_scope_id);
  // The port is at the same place in both families.
  if (!is_whole || bind.address.ipv4.sin_port == 0 || !is_tcp_or_udp(socket) ||
      !is_own_or_any(bind.address, *own_loopback))
    return bind;
  const bool is_any_ipv6 =
      bind.address.any.sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&bind.address.ipv6.sin6_addr);
  bind.wanted = {.protocol = socket_option(socket, SOL_SOCKET, SO_PROTOCOL),
                 .port = bind.address.ipv4.sin_port,
                 .own_ipv4 = own_ipv4,
                 .is_ipv6_alone = is_any_ipv6 && socket_option(socket, IPPROTO_IPV6, IPV6_V6ONLY) == 1};
  bind.shares_by_itself = socket_option(socket, SOL_SOCKET, SO_REUSEPORT) == 1;
  // Receivers of a group share its port, whatever host they are on.
  if (bind.shares_by_itself && bind.wanted.protocol != IPPROTO_UDP) set_shares(socket, false);
  return bind;
}

int end_bind(const PortBind& bind, int result) {
  if (bind.wanted.protocol == 0) return result;
  if (result != 0 && errno == EADDRINUSE) {
    if (!bind_as_own_host(bind)) return result;
    errno = bind.errno_before;
    return 0;
  }
  const ErrnoKept kept;
  const bool is_udp = bind.wanted.protocol == IPPROTO_UDP;
  if (bind.shares_by_itself || (result == 0 && is_udp)) set_shares(bind.socket, true);
  return result;
}

socklen_t lead_to_own_listener(int socket, const sockaddr* address, socklen_t length, SocketAddress& mapped) {
  const ErrnoKept kept;
  SocketAddress asked{};
  if (address == nullptr || length < sizeof asked.ipv4) return 0;
  std::memcpy(&asked, address, std::min<socklen_t>(length, sizeof asked));
  const sa_family_t family = asked.any.sa_family;
  if (family != AF_INET && (family != AF_INET6 || length < offsetof(sockaddr_in6, sin6_scope_id))) return 0;
  const in6_addr place =
      family == AF_INET ? ipv4_mapped(ntohl(asked.ipv4.sin_addr.s_addr)) : asked.ipv6.sin6_addr;
  const in6_addr localhost = ipv4_mapped(INADDR_LOOPBACK);
  if (!IN6_IS_ADDR_LOOPBACK(&place) && !IN6_ARE_ADDR_EQUAL(&place, &localhost)) return 0;
  const uint32_t own_ipv4 = own_wire_address();
  const auto own_loopback = loopback_of(own_ipv4);
  const int protocol = socket_option(socket, SOL_SOCKET, SO_PROTOCOL);
  if (!own_loopback || (protocol != IPPROTO_TCP && protocol != IPPROTO_MPTCP) ||
      (family == AF_INET6 && socket_option(socket, IPPROTO_IPV6, IPV6_V6ONLY) == 1))
    return 0;
  const WirePort port{.protocol = protocol, .port = asked.ipv4.sin_port, .own_ipv4 = own_ipv4};
  if (!listens_at_own_address_alone(port, place)) return 0;
  socklen_t used = 0;
  mapped = address_in_family(family, *own_loopback, port.port, used);
  return used;
}

void share_listening_port(int socket) {
  const ErrnoKept kept;
  if (own_wire_address() != 0 && is_at_any_address(socket) && is_tcp_or_udp(socket)) set_shares(socket, true);
}

}  // namespace faultline::abi
