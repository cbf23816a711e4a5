// SPDX-License-Identifier: BSD-3-Clause
// Packet sockets that share an interface's frames form a fanout group, whose number is one of 65536 in the
// network namespace. net_af_packet (DPDK 22.11) derives the number from the process ID and the interface's
// index. Another process at another interface may derive the same number; the kernel then refuses it, and the
// port fails. So the next free number is taken, and the same number for the port's other queues.
//
// The driver also requests the defragmentation of IP packets in the kernel, which is removed here. No RoCEv2
// packet is a fragment, so it would only keep strangers' fragments in the kernel's memory, and out of the
// port's counters.
#include "pmd_glue/ports/host/packet_fanout.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include <linux/if_packet.h>
#include <sys/socket.h>

#include "stack/base/process/process_local.hpp"

namespace {

// The kernel refuses each number while the interface is down. This limit skips a few used numbers, and still
// ends soon.
constexpr unsigned kTries = 256;
constexpr unsigned kNumberMask = 0xffff;
constexpr unsigned kDefragment = unsigned{PACKET_FANOUT_FLAG_DEFRAG} << 16;

/// The driver's sockets in this process; a forked child's copies stay the parent's, since a query resets the
/// kernel's counter of both. The driver closes them without notice.
struct Sockets {
  std::mutex mutex;
  std::map<unsigned, unsigned> groups;  ///< key: the number that the driver requested
  std::vector<int> descriptors;
  std::map<unsigned, uint64_t> drops;  ///< accumulated, by interface index
};

constinit faultline::ProcessLocal<Sockets> sockets;

}  // namespace

namespace faultline::glue {

uint64_t packet_socket_drops(unsigned interface_index) {
  Sockets& all = sockets.get();
  const std::lock_guard guard(all.mutex);
  std::erase_if(all.descriptors, [&](int descriptor) {
    sockaddr_ll bound{};
    socklen_t bound_bytes = sizeof bound;
    if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&bound), &bound_bytes) != 0 ||
        bound.sll_family != AF_PACKET)
      return true;
    // The query resets the kernel's counter.
    tpacket_stats counts{};
    socklen_t counts_bytes = sizeof counts;
    if (getsockopt(descriptor, SOL_PACKET, PACKET_STATISTICS, &counts, &counts_bytes) != 0) return true;
    all.drops[static_cast<unsigned>(bound.sll_ifindex)] += counts.tp_drops;
    return false;
  });
  return all.drops[interface_index];
}

std::vector<int> packet_sockets_at(unsigned interface_index) {
  Sockets& all = sockets.get();
  const std::lock_guard guard(all.mutex);
  std::vector<int> found;
  for (const int descriptor : all.descriptors) {
    sockaddr_ll bound{};
    socklen_t bound_bytes = sizeof bound;
    if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&bound), &bound_bytes) == 0 &&
        bound.sll_family == AF_PACKET && static_cast<unsigned>(bound.sll_ifindex) == interface_index)
      found.push_back(descriptor);
  }
  return found;
}

}  // namespace faultline::glue

extern "C" {
int __real_setsockopt(int fd, int level, int option, const void* value, socklen_t length_bytes);
int __wrap_setsockopt(int fd, int level, int option, const void* value, socklen_t length_bytes);

int __wrap_setsockopt(int fd, int level, int option, const void* value, socklen_t length_bytes) {
  unsigned asked = 0;
  if (level != SOL_PACKET || option != PACKET_FANOUT || length_bytes != sizeof asked)
    return __real_setsockopt(fd, level, option, value, length_bytes);
  std::memcpy(&asked, value, sizeof asked);
  Sockets& all = sockets.get();
  const std::lock_guard guard(all.mutex);
  const auto known = all.groups.find(asked);
  unsigned number = known == all.groups.end() ? asked & ~kDefragment : known->second;
  for (unsigned tries = 1;; ++tries) {
    if (__real_setsockopt(fd, level, option, &number, sizeof number) == 0) {
      all.groups[asked] = number;
      if (std::find(all.descriptors.begin(), all.descriptors.end(), fd) == all.descriptors.end())
        all.descriptors.push_back(fd);
      return 0;
    }
    if (errno != EINVAL || known != all.groups.end() || tries == kTries) return -1;
    number = (number & ~kNumberMask) | ((number + 1) & kNumberMask);
  }
}
}
