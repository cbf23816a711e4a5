// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/link/interface.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include <linux/ethtool.h>
#include <linux/if_tun.h>
#include <linux/kcmp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace faultline::glue {
namespace {

// A netdevice(7) request. Returns 0 or an errno.
int interface_ioctl(const std::string& name, unsigned long request, ifreq& argument) {
  if (name.size() >= IFNAMSIZ) return ENODEV;
  std::memcpy(argument.ifr_name, name.c_str(), name.size() + 1);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int error = ioctl(fd, request, &argument) == 0 ? 0 : errno;
  close(fd);
  return error;
}

// Returns nullopt if the driver does not say.
std::optional<bool> has_carrier(const std::string& name) {
  ethtool_value value{.cmd = ETHTOOL_GLINK, .data = 0};
  ifreq argument{};
  argument.ifr_data = reinterpret_cast<char*>(&value);
  if (interface_ioctl(name, SIOCETHTOOL, argument) != 0) return std::nullopt;
  return value.data != 0;
}

std::vector<int> tap_descriptors(const std::string& name) {
  std::vector<int> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string file = std::filesystem::read_symlink(entry.path(), error);
    if (error || file != "/dev/net/tun") continue;
    const int descriptor = std::atoi(entry.path().filename().c_str());
    ifreq argument{};
    if (ioctl(descriptor, TUNGETIFF, &argument) == 0 && name == argument.ifr_name)
      found.push_back(descriptor);
  }
  return found;
}

}  // namespace

bool interface_exists(const std::string& name) {
  return interface_index(name) != 0;
}

unsigned interface_index(const std::string& name) {
  return if_nametoindex(name.c_str());
}

bool interface_index_exists(unsigned index) {
  char name[IFNAMSIZ];
  return if_indextoname(index, name) != nullptr;
}

bool interface_is_running(unsigned index) {
  char name[IFNAMSIZ];
  ifreq argument{};
  if (if_indextoname(index, name) == nullptr || interface_ioctl(name, SIOCGIFFLAGS, argument) != 0)
    return false;
  if ((argument.ifr_flags & IFF_UP) == 0) return false;
  // IFF_RUNNING follows the carrier late: by a second, if many interfaces change.
  return has_carrier(name).value_or((argument.ifr_flags & IFF_RUNNING) != 0);
}

int find_tap_descriptor(const std::string& name) {
  const std::vector<int> found = tap_descriptors(name);
  return found.empty() ? -1 : found.front();
}

// net_tap (DPDK 22.11) has one descriptor that keeps the interface and receives no frames, and two of its
// queue: a duplicate for transmission.
int find_tap_queue(const std::string& name) {
  const std::vector<int> found = tap_descriptors(name);
  for (size_t i = 0; i < found.size(); ++i)
    for (size_t j = i + 1; j < found.size(); ++j)
      if (syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, found[i], found[j]) == 0) return found[i];
  return -1;
}

bool tap_is_attached(int descriptor) {
  // EBADFD: the interface was deleted (Linux, drivers/net/tun.c).
  ifreq argument{};
  return ioctl(descriptor, TUNGETIFF, &argument) == 0;
}

std::optional<uint32_t> interface_mtu_bytes(const std::string& name) {
  ifreq argument{};
  if (interface_ioctl(name, SIOCGIFMTU, argument) != 0 || argument.ifr_mtu < 0) return std::nullopt;
  return static_cast<uint32_t>(argument.ifr_mtu);
}

int set_interface_mtu(const std::string& name, uint32_t mtu_bytes) {
  ifreq argument{};
  argument.ifr_mtu = static_cast<int>(mtu_bytes);
  return interface_ioctl(name, SIOCSIFMTU, argument);
}

}  // namespace faultline::glue
