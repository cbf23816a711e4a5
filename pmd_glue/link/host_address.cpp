// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/link/host_address.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include "pmd_glue/link/socket_address.hpp"
#include "stack/base/unique_fd.hpp"
#include "stack/wire/link/link.hpp"

namespace faultline::glue {
namespace {

/// Returns the number of ones in a netmask, counted in the GID's 128 bits.
uint8_t prefix_of(const sockaddr* netmask, bool ipv4) {
  if (netmask == nullptr) return 128;
  // The family of a netmask may be unset.
  if (ipv4)
    return static_cast<uint8_t>(
        kIpv4PrefixBits + std::popcount(reinterpret_cast<const sockaddr_in*>(netmask)->sin_addr.s_addr));
  int bits = 0;
  for (const uint8_t byte : reinterpret_cast<const sockaddr_in6*>(netmask)->sin6_addr.s6_addr)
    bits += std::popcount(byte);
  return static_cast<uint8_t>(bits);
}

UniqueFd datagram_socket(const wire::Gid& gid) {
  return UniqueFd(socket(gid.is_ipv4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

std::optional<HostAddress> find_host_address(const wire::Gid& gid) {
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return std::nullopt;
  std::optional<HostAddress> found;
  for (const ifaddrs* at = interfaces; at != nullptr && !found; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const sa_family_t family = at->ifa_addr->sa_family;
    if ((family != AF_INET && family != AF_INET6) || gid_of(*at->ifa_addr) != gid) continue;
    found = {.network = {gid, prefix_of(at->ifa_netmask, gid.is_ipv4())}, .interface = at->ifa_name};
  }
  freeifaddrs(interfaces);
  return found;
}

std::vector<wire::Gid> default_route_addresses() {
  // Addresses for documentation (RFC 5737, RFC 3849), which only a default route leads to. connect(2) of a
  // UDP socket chooses the source address and sends nothing.
  constexpr uint32_t kIpv4Elsewhere = 0xcb007101;
  constexpr wire::Gid kIpv6Elsewhere{{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  constexpr uint16_t kAnyPort = 9;
  std::vector<wire::Gid> sources;
  for (const wire::Gid& elsewhere : {wire::Gid::from_ipv4(kIpv4Elsewhere), kIpv6Elsewhere}) {
    const UniqueFd fd = datagram_socket(elsewhere);
    const SocketAddress to = socket_address_of(elsewhere, kAnyPort);
    SocketAddress own{};
    own.length_bytes = sizeof own.ipv6;
    if (fd.get() < 0 || connect(fd.get(), &to.any, to.length_bytes) != 0 ||
        getsockname(fd.get(), &own.any, &own.length_bytes) != 0)
      continue;
    if (const wire::Gid source = gid_of(own.any); !wire::is_link_local(source)) sources.push_back(source);
  }
  return sources;
}

bool is_host_address(const wire::Gid& gid, uint16_t udp_port) {
  const UniqueFd fd = datagram_socket(gid);
  const SocketAddress address = socket_address_of(gid, udp_port);
  return fd.get() >= 0 && bind(fd.get(), &address.any, address.length_bytes) == 0;
}

}  // namespace faultline::glue
