// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/link/address_text.hpp"

#include <array>

#include <arpa/inet.h>

namespace faultline::wire {

std::string text_of(const Gid& gid) {
  constexpr size_t kIpv4Offset = 12;
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool ipv4 = gid.is_ipv4();
  inet_ntop(ipv4 ? AF_INET : AF_INET6, gid.bytes.data() + (ipv4 ? kIpv4Offset : 0), text.data(), text.size());
  return text.data();
}

std::string text_of_ipv4(uint32_t ipv4) {
  return text_of(Gid::from_ipv4(ipv4));
}

}  // namespace faultline::wire
