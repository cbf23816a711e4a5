// SPDX-License-Identifier: BSD-3-Clause
// The ioctl(2) requests of netdevice(7) about our interfaces, in the drop-in.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <string_view>
#include <vector>

#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stack/abi/interfaces/own_interfaces.hpp"
#include "stack/abi/interpose/next_call.hpp"
#include "stack/abi/interpose/socket_ioctl.hpp"

namespace faultline::abi {
namespace {

std::string_view name_in(const ifreq& request) {
  return {request.ifr_name, strnlen(request.ifr_name, sizeof request.ifr_name)};
}

/// Of the IPv4 addresses; the requests know no others.
const InterfaceAddress* first_ipv4(const OwnInterface& own) {
  const auto found = std::ranges::find_if(
      own.addresses, [](const InterfaceAddress& address) { return address.gid.is_ipv4(); });
  return found == own.addresses.end() ? nullptr : &*found;
}

void put_ipv4(sockaddr& to, uint32_t ipv4) {
  const sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(ipv4)}, .sin_zero = {}};
  std::memcpy(&to, &address, sizeof to);
}

int put_address(const OwnInterface& own, unsigned long request, sockaddr& to) {
  const InterfaceAddress* const address = first_ipv4(own);
  if (address == nullptr) return fail_with(EADDRNOTAVAIL);
  const uint32_t ipv4 = address->gid.ipv4();
  const uint32_t mask = masked(wire::Gid::from_ipv4(UINT32_MAX), address->prefix_bits).ipv4();
  put_ipv4(to, request == SIOCGIFNETMASK ? mask : request == SIOCGIFBRDADDR ? ipv4 | ~mask : ipv4);
  return 0;
}

/// Answers a request about one of our interfaces, which `about` names.
int answer_about(const OwnInterface& own, unsigned long request, ifreq& about) {
  switch (request) {
    case SIOCGIFINDEX:
      about.ifr_ifindex = static_cast<int>(own.index);
      return 0;
    case SIOCGIFFLAGS:
      about.ifr_flags = static_cast<short>(flags_of(own));
      return 0;
    case SIOCGIFADDR:
    case SIOCGIFDSTADDR:
    case SIOCGIFNETMASK:
    case SIOCGIFBRDADDR:
      return put_address(own, request, about.ifr_addr);
    case SIOCGIFHWADDR:
      about.ifr_hwaddr = {};
      about.ifr_hwaddr.sa_family = ARPHRD_ETHER;
      std::memcpy(about.ifr_hwaddr.sa_data, own.mac.bytes.data(), own.mac.bytes.size());
      return 0;
    case SIOCGIFMTU:
      about.ifr_mtu = static_cast<int>(own.mtu_bytes);
      return 0;
    case SIOCGIFMETRIC:
      about.ifr_metric = 0;
      return 0;
    case SIOCGIFTXQLEN:
      about.ifr_qlen = int{kQueueLength};
      return 0;
    case SIOCGIFMAP:
      about.ifr_map = {};
      return 0;
    case SIOCSIFADDR:
    case SIOCSIFFLAGS:
    case SIOCSIFMTU:
    case SIOCSIFNETMASK:
    case SIOCSIFBRDADDR:
    case SIOCSIFHWADDR:
    case SIOCSIFNAME:
      // The wire decides.
      return fail_with(EPERM);
    default:
      return fail_with(EOPNOTSUPP);
  }
}

/// SIOCGIFCONF: the host's addresses of IPv4, then ours, as far as there is room.
int list_addresses(int socket, ifconf& list, const std::vector<OwnInterface>& interfaces) {
  const int room = list.ifc_len;
  const bool asks_for_length = list.ifc_buf == nullptr;
  if (syscall(SYS_ioctl, socket, SIOCGIFCONF, &list) != 0) return -1;
  constexpr int kEntryBytes = sizeof(ifreq);
  for (const OwnInterface& own : interfaces) {
    for (const InterfaceAddress& address : own.addresses) {
      if (!address.gid.is_ipv4()) continue;
      if (!asks_for_length) {
        if (room - list.ifc_len < kEntryBytes) return 0;
        ifreq entry{};
        own.name.copy(entry.ifr_name, sizeof entry.ifr_name - 1);
        put_ipv4(entry.ifr_addr, address.gid.ipv4());
        std::memcpy(list.ifc_buf + list.ifc_len, &entry, sizeof entry);
      }
      list.ifc_len += kEntryBytes;
    }
  }
  return 0;
}

/// Whether the argument is an ifreq or an ifconf. Others are shorter.
bool is_interface_request(unsigned long request) {
  switch (request) {
    case SIOCGIFTXQLEN:
    case SIOCSIFTXQLEN:
    case SIOCGIFMAP:
    case SIOCSIFMAP:
    case SIOCETHTOOL:
      return true;
    default:
      return request >= SIOCGIFNAME && request <= SIOCGIFINDEX;
  }
}

bool is_socket(int descriptor) {
  int type = 0;
  socklen_t length = sizeof type;
  return syscall(SYS_getsockopt, descriptor, SOL_SOCKET, SO_TYPE, &type, &length) == 0;
}

std::optional<int> answer_ioctl(int socket, unsigned long request, void* argument) {
  // The kernel says what is wrong with the others.
  if (!is_interface_request(request) || argument == nullptr || !shows_interfaces() || !is_socket(socket))
    return std::nullopt;
  try {
    const std::vector<OwnInterface> interfaces = own_interfaces();
    if (interfaces.empty()) return std::nullopt;
    if (request == SIOCGIFCONF) return list_addresses(socket, *static_cast<ifconf*>(argument), interfaces);
    auto& about = *static_cast<ifreq*>(argument);
    const bool by_index = request == SIOCGIFNAME;
    for (const OwnInterface& own : interfaces) {
      if (by_index ? static_cast<int>(own.index) != about.ifr_ifindex : own.name != name_in(about)) continue;
      if (!by_index) return answer_about(own, request, about);
      *std::copy(own.name.begin(), own.name.end(), about.ifr_name) = '\0';
      return 0;
    }
    return std::nullopt;
  } catch (const std::bad_alloc&) {
    return fail_with(ENOMEM);
  }
}

[[gnu::constructor]] void answer_socket_ioctls() {
  socket_ioctl.store(answer_ioctl, std::memory_order_relaxed);
}

}  // namespace
}  // namespace faultline::abi
