// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/sockets/wire_address.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#include <arpa/inet.h>

namespace faultline::abi {
namespace {

/// The kernel's least length of an IPv6 address: without sin6_scope_id (RFC 2133).
constexpr socklen_t kLeastIpv6Bytes = offsetof(sockaddr_in6, sin6_scope_id);

/// Returns where the IPv4 address is in an address of `length` valid bytes; 0 if there is none.
size_t ipv4_offset(const sockaddr* address, socklen_t length) {
  constexpr std::array<uint8_t, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  constexpr size_t kIpv6 = offsetof(sockaddr_in6, sin6_addr);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(address);
  sa_family_t family = AF_UNSPEC;
  if (length < sizeof family) return 0;
  std::memcpy(&family, bytes, sizeof family);
  if (family == AF_INET)
    return length >= offsetof(sockaddr_in, sin_addr) + sizeof(in_addr) ? offsetof(sockaddr_in, sin_addr) : 0;
  if (family != AF_INET6 || length < kIpv6 + sizeof(in6_addr)) return 0;
  return std::memcmp(bytes + kIpv6, kMappedPrefix.data(), kMappedPrefix.size()) == 0
             ? kIpv6 + kMappedPrefix.size()
             : 0;
}

uint32_t load(const void* from) {
  uint32_t ipv4 = 0;
  std::memcpy(&ipv4, from, sizeof ipv4);
  return ntohl(ipv4);
}
void store(void* to, uint32_t ipv4) {
  ipv4 = htonl(ipv4);
  std::memcpy(to, &ipv4, sizeof ipv4);
}

}  // namespace

SocketAddress address_in_family(sa_family_t family, uint32_t ipv4, in_port_t port, socklen_t& length) {
  SocketAddress address{};
  if (family == AF_INET) {
    address.ipv4 = {.sin_family = AF_INET, .sin_port = port, .sin_addr = {htonl(ipv4)}, .sin_zero = {}};
    length = sizeof address.ipv4;
    return address;
  }
  address.ipv6 = {};
  address.ipv6.sin6_family = AF_INET6;
  address.ipv6.sin6_port = port;
  address.ipv6.sin6_addr = ipv4_mapped(ipv4);
  length = sizeof address.ipv6;
  return address;
}

in6_addr ipv4_mapped(uint32_t ipv4) {
  in6_addr address{};
  address.s6_addr16[5] = 0xffff;
  address.s6_addr32[3] = htonl(ipv4);
  return address;
}

in6_addr ipv6_stand_in(uint32_t ipv4) {
  in6_addr address{};
  address.s6_addr32[0] = htonl(0x2001'0002);
  address.s6_addr32[3] = htonl(ipv4);
  return address;
}

socklen_t to_loopback(const sockaddr* address, socklen_t length, SocketAddress& mapped) {
  if (length < sizeof(sockaddr_in) || length > sizeof(sockaddr_storage)) return 0;
  const size_t offset = ipv4_offset(address, length);
  if (offset == 0) return 0;
  const bool is_ipv6 = offset > sizeof(sockaddr_in);
  if (is_ipv6 && length < kLeastIpv6Bytes) return 0;
  const auto loopback = loopback_of(load(reinterpret_cast<const uint8_t*>(address) + offset));
  if (!loopback) return 0;
  const auto used = std::min<socklen_t>(length, is_ipv6 ? sizeof mapped.ipv6 : sizeof mapped.ipv4);
  std::memcpy(&mapped, address, used);
  store(reinterpret_cast<uint8_t*>(&mapped) + offset, *loopback);
  return used;
}

void to_wire_address(sockaddr* address, socklen_t length) {
  const size_t offset = ipv4_offset(address, length);
  if (offset == 0) return;
  auto* const place = reinterpret_cast<uint8_t*>(address) + offset;
  if (const auto ipv4 = wire_address_of(load(place))) store(place, *ipv4);
}

namespace {

/// Calls `change` for each IPv4 address in packet information, also for an IPv4-mapped one.
template <typename Change>
void for_addresses_in_control(msghdr& message, Change change) {
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    uint8_t* const data = CMSG_DATA(at);
    if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_PKTINFO &&
        at->cmsg_len >= CMSG_LEN(sizeof(in_pktinfo))) {
      change(data + offsetof(in_pktinfo, ipi_spec_dst));
      change(data + offsetof(in_pktinfo, ipi_addr));
    } else if (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_PKTINFO &&
               at->cmsg_len >= CMSG_LEN(sizeof(in6_pktinfo))) {
      in6_addr address{};
      std::memcpy(&address, data, sizeof address);
      if (IN6_IS_ADDR_V4MAPPED(&address)) change(data + offsetof(in6_addr, s6_addr32[3]));
    } else if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_ORIGDSTADDR &&
               at->cmsg_len >= CMSG_LEN(sizeof(sockaddr_in))) {
      change(data + offsetof(sockaddr_in, sin_addr));
    }
  }
}

}  // namespace

void control_to_wire_address(msghdr& message) {
  for_addresses_in_control(message, [](void* place) {
    if (const auto ipv4 = wire_address_of(load(place))) store(place, *ipv4);
  });
}

void control_to_loopback(msghdr& message) {
  for_addresses_in_control(message, [](void* place) {
    if (const auto ipv4 = loopback_of(load(place))) store(place, *ipv4);
  });
}

uint32_t requested_address(std::string_view request) {
  constexpr uint32_t kFirstSide = 0xc6120001;  // 198.18.0.1
  constexpr uint32_t kShared = 0xc61200ff;
  uint32_t found = 0;
  bool is_shared = false;
  for (size_t comma = request.find(','); comma != std::string_view::npos;) {
    request.remove_prefix(comma + 1);
    comma = request.find(',');
    const std::string_view option = request.substr(0, comma);
    std::array<char, INET_ADDRSTRLEN> text{};
    constexpr std::string_view kSide = "side=";
    constexpr std::string_view kIp = "ip=";
    if (option == "share") {
      is_shared = true;
    } else if (option.starts_with(kSide) && option.size() == kSide.size() + 1) {
      const char side = option.back();
      if (side >= 'a' && side <= 'z') found = kFirstSide + static_cast<uint32_t>(side - 'a');
    } else if (option.starts_with(kIp) && option.size() - kIp.size() < text.size()) {
      option.copy(text.data(), text.size() - 1, kIp.size());
      in_addr parsed{};
      if (inet_pton(AF_INET, text.data(), &parsed) == 1) found = ntohl(parsed.s_addr);
    }
  }
  if (found == 0 && is_shared) found = kShared;
  return loopback_of(found) ? found : 0;
}

}  // namespace faultline::abi
