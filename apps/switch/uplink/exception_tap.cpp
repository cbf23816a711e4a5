// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/uplink/exception_tap.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <rte_mbuf.h>
#include <spdlog/fmt/fmt.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/switch/uplink/predecessor.hpp"
#include "pmd_glue/eal/mbuf_view.hpp"
#include "stack/base/log.hpp"

namespace faultline::switching {
namespace {

ifreq request_for(const std::string& name) {
  ifreq request{};
  std::memcpy(request.ifr_name, name.c_str(), std::min<size_t>(name.size(), IFNAMSIZ - 1));
  return request;
}

/// Each returns 0 or an errno value. An ordinary user may use an interface that already has what is wanted.
int set_mac(int control, const std::string& name, const wire::MacAddress& mac) {
  ifreq request = request_for(name);
  if (ioctl(control, SIOCGIFHWADDR, &request) == 0 &&
      std::memcmp(request.ifr_hwaddr.sa_data, mac.bytes.data(), mac.bytes.size()) == 0)
    return 0;
  request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
  std::memcpy(request.ifr_hwaddr.sa_data, mac.bytes.data(), mac.bytes.size());
  return ioctl(control, SIOCSIFHWADDR, &request) == 0 ? 0 : errno;
}

int set_mtu(int control, const std::string& name, uint32_t mtu_bytes) {
  ifreq request = request_for(name);
  if (ioctl(control, SIOCGIFMTU, &request) == 0 && request.ifr_mtu == static_cast<int>(mtu_bytes)) return 0;
  request.ifr_mtu = static_cast<int>(mtu_bytes);
  return ioctl(control, SIOCSIFMTU, &request) == 0 ? 0 : errno;
}

int bring_up(int control, const std::string& name) {
  ifreq request = request_for(name);
  if (ioctl(control, SIOCGIFFLAGS, &request) != 0) return errno;
  if ((request.ifr_flags & IFF_UP) != 0) return 0;
  request.ifr_flags = static_cast<int16_t>(request.ifr_flags | IFF_UP);
  return ioctl(control, SIOCSIFFLAGS, &request) == 0 ? 0 : errno;
}

/// Attaches the descriptor to the tap. A switch that has just been killed may have it still, so this waits
/// for a while. Returns 0 or an errno value.
int attach(int tap, const std::string& name) {
  ifreq request = request_for(name);
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  const auto latest = std::chrono::steady_clock::now() + kPredecessorPatience;
  for (bool is_noted = false; ioctl(tap, TUNSETIFF, &request) != 0; is_noted = true) {
    if (errno != EBUSY || std::chrono::steady_clock::now() >= latest) return errno;
    if (!is_noted) log().warn("waits for the tap {}: another process has it", name);
    std::this_thread::sleep_for(kPredecessorPause);
  }
  return 0;
}

std::string advice_on(const std::string& name, int error) {
  if (error == EBUSY) return "; another process uses it: end that one, or choose another name";
  if (error == EPERM)
    return fmt::format(
        "; give the switch CAP_NET_ADMIN, or make it first: ip tuntap add dev {} mode tap user {}", name,
        geteuid());
  if (error == EINVAL) return "; an interface of another kind has this name: choose another one";
  return {};
}

}  // namespace

std::unique_ptr<ExceptionTap> ExceptionTap::open(const std::string& name, const wire::MacAddress& mac,
                                                 uint32_t mtu_bytes, std::string& error) {
  const auto refuse = [&](std::string_view what, int reason) {
    error = fmt::format("{}: {}{}", what, std::strerror(reason), advice_on(name, reason));
    return nullptr;
  };
  UniqueFd tap(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!tap) return refuse("cannot open /dev/net/tun", errno);
  if (const int failed = attach(tap.get(), name); failed != 0)
    return refuse(fmt::format("cannot make the tap {}", name), failed);
  if (ioctl(tap.get(), TUNSETPERSIST, 1) != 0)
    return refuse(fmt::format("cannot keep the tap {}", name), errno);
  const UniqueFd control(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!control) return refuse("cannot open a socket", errno);
  if (const int failed = set_mac(control.get(), name, mac); failed != 0)
    return refuse(fmt::format("cannot give the tap {} the uplink's MAC address", name), failed);
  if (const int failed = set_mtu(control.get(), name, mtu_bytes); failed != 0)
    return refuse(fmt::format("cannot set the MTU of the tap {} to {}", name, mtu_bytes), failed);
  if (const int failed = bring_up(control.get(), name); failed != 0)
    return refuse(fmt::format("cannot bring up the tap {}", name), failed);
  return std::unique_ptr<ExceptionTap>(new ExceptionTap(std::move(tap)));
}

size_t ExceptionTap::receive(rte_mempool* pool, std::span<rte_mbuf*> burst) {
  size_t received = 0;
  while (received < burst.size()) {
    rte_mbuf* const frame = rte_pktmbuf_alloc(pool);
    if (frame == nullptr) break;
    const ssize_t length_bytes =
        read(tap_.get(), rte_pktmbuf_mtod(frame, void*), rte_pktmbuf_tailroom(frame));
    if (length_bytes <= 0) {
      rte_pktmbuf_free(frame);
      break;
    }
    glue::set_length(frame, static_cast<size_t>(length_bytes));
    burst[received++] = frame;
  }
  return received;
}

void ExceptionTap::transmit(std::span<rte_mbuf*> burst) {
  for (rte_mbuf* const frame : burst) {
    const auto bytes = glue::bytes_of(frame);
    static_cast<void>(!write(tap_.get(), bytes.data(), bytes.size()));
    rte_pktmbuf_free(frame);
  }
}

}  // namespace faultline::switching
