// SPDX-License-Identifier: BSD-3-Clause
// The ioctl(2) requests of netdevice(7) about our interfaces, in the drop-in.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>
#include <optional>
#include <string_view>
#include <vector>

#include <linux/ethtool.h>
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

/// linux/ethtool.h: what drivers tell of an interface. Programs ask for its speed above all.
template <typename Answer>
int put_answer(void* to, const Answer& answer) {
  std::memcpy(to, &answer, sizeof answer);
  return 0;
}

ethtool_drvinfo driver() {
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  constexpr std::string_view kName = "faultline";
  kName.copy(driver.driver, sizeof driver.driver - 1);
  return driver;
}

ethtool_cmd settings_of(const OwnInterface& own) {
  ethtool_cmd settings{};
  settings.cmd = ETHTOOL_GSET;
  ethtool_cmd_speed_set(&settings, own.speed_mbps);
  settings.duplex = DUPLEX_FULL;
  settings.port = PORT_OTHER;
  return settings;
}

/// Linux's net/ethtool/ioctl.c: a caller with another number of words in its masks of link modes learns the
/// right one, as a negative number.
int put_link_settings(const OwnInterface& own, void* argument) {
  constexpr int8_t kMaskWords = 1;
  constexpr std::array<uint32_t, 3> kNoModes{};  // supported, advertised, the partner's
  ethtool_link_settings asked;
  std::memcpy(&asked, argument, sizeof asked);
  ethtool_link_settings settings{};
  settings.cmd = ETHTOOL_GLINKSETTINGS;
  if (asked.link_mode_masks_nwords != kMaskWords) {
    settings.link_mode_masks_nwords = -kMaskWords;
    return put_answer(argument, settings);
  }
  settings.link_mode_masks_nwords = kMaskWords;
  settings.speed = own.speed_mbps;
  settings.duplex = DUPLEX_FULL;
  settings.port = PORT_OTHER;
  std::memcpy(static_cast<std::byte*>(argument) + sizeof settings, kNoModes.data(), sizeof kNoModes);
  return put_answer(argument, settings);
}

int answer_ethtool(const OwnInterface& own, void* argument) {
  if (argument == nullptr) return fail_with(EFAULT);
  uint32_t command = 0;
  std::memcpy(&command, argument, sizeof command);
  switch (command) {
    case ETHTOOL_GSET:
      return put_answer(argument, settings_of(own));
    case ETHTOOL_GLINKSETTINGS:
      return put_link_settings(own, argument);
    case ETHTOOL_GDRVINFO:
      return put_answer(argument, driver());
    case ETHTOOL_GLINK:
      return put_answer(argument, ethtool_value{.cmd = command, .data = own.is_up ? 1U : 0U});
    default:
      return fail_with(EOPNOTSUPP);
  }
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
    case SIOCETHTOOL:
      return answer_ethtool(own, about.ifr_data);
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
