// SPDX-License-Identifier: BSD-3-Clause
// Which network interface of a list has an address of a device.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include <ifaddrs.h>
#include <netinet/in.h>

#include "stack/verbs/objects/backend.hpp"

namespace faultline::verbs {

/// Returns the name of the first interface with one of the addresses, which is in the list; nullptr if there
/// is none.
[[nodiscard]] inline const char* interface_with(std::span<const wire::Gid> addresses, const ifaddrs* list) {
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    wire::Gid gid;
    if (at->ifa_addr->sa_family == AF_INET)
      gid = wire::Gid::from_ipv4(ntohl(reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr.s_addr));
    else if (at->ifa_addr->sa_family == AF_INET6)
      std::memcpy(gid.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr,
                  gid.bytes.size());
    if (!gid.is_zero() && std::ranges::find(addresses, gid) != addresses.end()) return at->ifa_name;
  }
  return nullptr;
}

}  // namespace faultline::verbs
