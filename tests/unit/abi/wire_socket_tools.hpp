// SPDX-License-Identifier: BSD-3-Clause
// Sockets of a program that is side b of a wire, and their addresses.
#pragma once

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "stack/abi/sockets/wire_address.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::abi {

inline constexpr uint32_t kSideA = 0xc6120001;  // 198.18.0.1
inline constexpr uint32_t kSideB = 0xc6120002;
inline constexpr uint32_t kLocalhost = INADDR_LOOPBACK;

inline sockaddr_in ipv4_address(uint32_t ipv4, uint16_t port = 0) {
  return {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(ipv4)}, .sin_zero = {}};
}
inline sockaddr_in6 mapped_address(uint32_t ipv4, uint16_t port = 0) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_addr.s6_addr16[5] = 0xffff;
  address.sin6_addr.s6_addr32[3] = htonl(ipv4);
  return address;
}
template <typename Address>
const sockaddr* raw(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}
template <typename Address>
sockaddr* raw(Address& address) {
  return reinterpret_cast<sockaddr*>(&address);
}

/// Returns "198.18.0.1", or the IPv4 part of an IPv4-mapped address after "::ffff:".
inline std::string text_of(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  SocketAddress copy{};
  std::memcpy(&copy, &address, sizeof copy);
  const void* const bytes = address.ss_family == AF_INET ? static_cast<const void*>(&copy.ipv4.sin_addr)
                                                         : static_cast<const void*>(&copy.ipv6.sin6_addr);
  return inet_ntop(address.ss_family, bytes, text.data(), text.size());
}
using NameCall = int (*)(int, sockaddr*, socklen_t*);
inline std::string name(int socket, NameCall call) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  return call(socket, raw(address), &length) == 0 ? text_of(address) : std::strerror(errno);
}
inline uint16_t port_of(int socket) {
  SocketAddress address{};
  socklen_t length = sizeof address;
  EXPECT_EQ(getsockname(socket, &address.any, &length), 0);
  return ntohs(address.ipv4.sin_port);  // at the same place in both families
}

inline UniqueFd socket_of(int family, int type) {
  return UniqueFd(socket(family, type, 0));
}
inline UniqueFd bound_to(uint32_t ipv4, int type, uint16_t port = 0) {
  UniqueFd made = socket_of(AF_INET, type);
  const sockaddr_in address = ipv4_address(ipv4, port);
  EXPECT_EQ(bind(made.get(), raw(address), sizeof address), 0) << std::strerror(errno);
  return made;
}
inline UniqueFd listener_at(uint32_t ipv4, uint16_t port = 0) {
  UniqueFd made = bound_to(ipv4, SOCK_STREAM, port);
  EXPECT_EQ(listen(made.get(), 4), 0);
  return made;
}
inline UniqueFd connected_to(uint32_t ipv4, uint16_t port, int type = SOCK_STREAM) {
  UniqueFd made = socket_of(AF_INET, type);
  const sockaddr_in address = ipv4_address(ipv4, port);
  EXPECT_EQ(connect(made.get(), raw(address), sizeof address), 0) << std::strerror(errno);
  return made;
}

/// Holds the port of the program's arguments for wire_ports_test.cpp, if they ask for it. Returns the exit
/// status, or -1.
int hold_port_if_asked(int argc, char** argv);

}  // namespace faultline::abi
