// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/sockets/interface_option.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>

#include <arpa/inet.h>

#include "stack/abi/interfaces/own_interfaces.hpp"
#include "stack/abi/sockets/wire_address.hpp"

namespace faultline::abi {

namespace {

/// linux/if.h: the loopback interface of each network namespace.
constexpr uint32_t kLoopbackIndex = 1;

bool is_own_index(uint32_t index) {
  if (index <= kLoopbackIndex) return false;
  try {
    const std::vector<OwnInterface> own = own_interfaces();
    return std::any_of(own.begin(), own.end(), [=](const OwnInterface& one) { return one.index == index; });
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

/// An IPv4 address in network byte order, if the value has one there.
bool InterfaceOption::map_address(size_t at) {
  uint32_t address = 0;
  if (at + sizeof address > length_bytes_) return false;
  std::memcpy(&address, bytes_.data() + at, sizeof address);
  const std::optional<uint32_t> loopback = loopback_of(ntohl(address));
  if (!loopback) return false;
  address = htonl(*loopback);
  std::memcpy(bytes_.data() + at, &address, sizeof address);
  return true;
}

bool InterfaceOption::map_index(size_t at) {
  uint32_t index = 0;
  if (at + sizeof index > length_bytes_) return false;
  std::memcpy(&index, bytes_.data() + at, sizeof index);
  if (!is_own_index(index)) return false;
  std::memcpy(bytes_.data() + at, &kLoopbackIndex, sizeof kLoopbackIndex);
  return true;
}

bool InterfaceOption::map(int level, int name, const void* value, socklen_t length_bytes) {
  if (value == nullptr || length_bytes > bytes_.size()) return false;
  const auto load = [&] {
    std::memcpy(bytes_.data(), value, length_bytes);
    length_bytes_ = length_bytes;
  };
  constexpr size_t kSourceAddress = offsetof(group_source_req, gsr_source) + offsetof(sockaddr_in, sin_addr);
  if (level == IPPROTO_IP) {
    switch (name) {
      case IP_MULTICAST_IF:
        load();
        if (length_bytes < sizeof(ip_mreq)) return map_address(0);
        return map_address(offsetof(ip_mreqn, imr_address)) | map_index(offsetof(ip_mreqn, imr_ifindex));
      case IP_ADD_MEMBERSHIP:
      case IP_DROP_MEMBERSHIP:
        load();
        return map_address(offsetof(ip_mreqn, imr_address)) | map_index(offsetof(ip_mreqn, imr_ifindex));
      case IP_ADD_SOURCE_MEMBERSHIP:
      case IP_DROP_SOURCE_MEMBERSHIP:
      case IP_BLOCK_SOURCE:
      case IP_UNBLOCK_SOURCE:
        load();
        return map_address(offsetof(ip_mreq_source, imr_interface)) |
               map_address(offsetof(ip_mreq_source, imr_sourceaddr));
      default:
        break;
    }
  }
  if (level == IPPROTO_IPV6) {
    switch (name) {
      case IPV6_MULTICAST_IF:
        load();
        return map_index(0);
      case IPV6_ADD_MEMBERSHIP:
      case IPV6_DROP_MEMBERSHIP:
        load();
        return map_index(offsetof(ipv6_mreq, ipv6mr_interface));
      default:
        break;
    }
  }
  if (level != IPPROTO_IP && level != IPPROTO_IPV6) return false;
  switch (name) {
    case MCAST_JOIN_GROUP:
    case MCAST_LEAVE_GROUP:
      load();
      return map_index(offsetof(group_req, gr_interface));
    case MCAST_JOIN_SOURCE_GROUP:
    case MCAST_LEAVE_SOURCE_GROUP:
    case MCAST_BLOCK_SOURCE:
    case MCAST_UNBLOCK_SOURCE: {
      load();
      const auto& source = static_cast<const group_source_req*>(value)->gsr_source;
      const bool is_ipv4 = length_bytes == sizeof(group_source_req) && source.ss_family == AF_INET;
      return map_index(offsetof(group_source_req, gsr_interface)) | (is_ipv4 && map_address(kSourceAddress));
    }
    default:
      return false;
  }
}

}  // namespace faultline::abi
