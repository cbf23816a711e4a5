// SPDX-License-Identifier: BSD-3-Clause
// Packet sockets that share an interface's frames are a group, whose number is one of 65536 in their network
// namespace. net_af_packet (DPDK 22.11) makes it of the process ID and the interface's index, which another
// process at another interface may come to as well; the kernel refuses it then, and with it the port. So the
// next number that is free is taken, and the same for the port's other queues.
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include <linux/if_packet.h>
#include <sys/socket.h>

namespace {

// An interface that is down is refused for each number: enough to pass a few others, and soon over.
constexpr unsigned kTries = 256;
constexpr unsigned kNumberMask = 0xffff;

}  // namespace

extern "C" {
int __real_setsockopt(int fd, int level, int option, const void* value, socklen_t length_bytes);
int __wrap_setsockopt(int fd, int level, int option, const void* value, socklen_t length_bytes);

int __wrap_setsockopt(int fd, int level, int option, const void* value, socklen_t length_bytes) {
  unsigned asked = 0;
  if (level != SOL_PACKET || option != PACKET_FANOUT || length_bytes != sizeof asked)
    return __real_setsockopt(fd, level, option, value, length_bytes);
  std::memcpy(&asked, value, sizeof asked);
  static std::mutex mutex;
  static auto& groups = *new std::map<unsigned, unsigned>;  // by what the driver asked for
  const std::lock_guard guard(mutex);
  const auto known = groups.find(asked);
  unsigned number = known == groups.end() ? asked : known->second;
  for (unsigned tries = 1;; ++tries) {
    if (__real_setsockopt(fd, level, option, &number, sizeof number) == 0) {
      groups[asked] = number;
      return 0;
    }
    if (errno != EINVAL || known != groups.end() || tries == kTries) return -1;
    number = (number & ~kNumberMask) | ((number + 1) & kNumberMask);
  }
}
}
