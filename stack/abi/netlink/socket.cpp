// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/netlink/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "stack/abi/tree/known_devices.hpp"
#include "stack/base/process/errno_kept.hpp"

namespace faultline::abi {
namespace {

/// Longest request: more than any program sends.
constexpr size_t kMostRequestBytes = size_t{64} << 10;

bool is_netlink_address(const sockaddr* address, socklen_t length) {
  return address != nullptr && length >= sizeof(sockaddr_nl) && address->sa_family == AF_NETLINK;
}

void put_address(uint32_t port, void* address, socklen_t* length) {
  if (address == nullptr || length == nullptr) return;
  sockaddr_nl own{};
  own.nl_family = AF_NETLINK;
  own.nl_pid = port;
  std::memcpy(address, &own, std::min<size_t>(*length, sizeof own));
  *length = sizeof own;
}

}  // namespace

std::optional<int> open_rdma_netlink(int type) {
  {
    const ErrnoKept kept;
    if (KnownDevices(false).facts().empty()) return std::nullopt;
  }
  return NetlinkSocket::open(
      type, [](UniqueFd answers) { return std::make_shared<RdmaNetlinkSocket>(std::move(answers)); });
}

int NetlinkSocket::open_pair(int type, UniqueFd& answers) {
  constexpr int kFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;
  const int kind = type & ~kFlags;
  if (kind != SOCK_RAW && kind != SOCK_DGRAM) {
    errno = ESOCKTNOSUPPORT;
    return -1;
  }
  int ends[2];
  // Not the C library's functions, some of which this library interposes on.
  if (syscall(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  answers = UniqueFd(ends[1]);
  const int number = ends[0];
  if ((type & SOCK_CLOEXEC) == 0) syscall(SYS_fcntl, number, F_SETFD, 0);
  if ((type & SOCK_NONBLOCK) != 0) syscall(SYS_fcntl, number, F_SETFL, O_RDWR | O_NONBLOCK);
  return number;
}

int NetlinkSocket::add(int number, std::shared_ptr<NetlinkSocket> socket) {
  has_opened_netlink.store(true, std::memory_order_relaxed);
  if (add_descriptor(number, std::move(socket))) return number;
  syscall(SYS_close, number);
  errno = EMFILE;
  return -1;
}

NetlinkSocket::NetlinkSocket(UniqueFd answers)
    : OpenFile({"", Node{NodeKind::socket, {}, 0, 0, {}}, {}}), answers_(std::move(answers)) {}

std::shared_ptr<NetlinkSocket> NetlinkSocket::find(int descriptor) {
  return std::dynamic_pointer_cast<NetlinkSocket>(find_descriptor(descriptor));
}

uint32_t RdmaNetlinkSocket::port_locked() {
  // The kernel's choice for the first socket of a process. No two sockets share a receiver here, so that
  // more of them may have it.
  if (asker_.port == 0) asker_.port = static_cast<uint32_t>(getpid());
  return asker_.port;
}

int RdmaNetlinkSocket::bind(int /*descriptor*/, const sockaddr* address, socklen_t length) {
  if (!is_netlink_address(address, length)) return -EINVAL;
  sockaddr_nl wanted;
  std::memcpy(&wanted, address, sizeof wanted);
  const std::lock_guard lock(mutex_);
  // A socket keeps the port that it has. Groups have no messages: no device changes while it is listed.
  if (asker_.port != 0 && wanted.nl_pid != 0 && wanted.nl_pid != asker_.port) return -EINVAL;
  if (wanted.nl_pid != 0) asker_.port = wanted.nl_pid;
  static_cast<void>(port_locked());
  return 0;
}

int RdmaNetlinkSocket::connect(const sockaddr* address, socklen_t length) {
  if (!is_netlink_address(address, length)) return -EINVAL;
  sockaddr_nl peer;
  std::memcpy(&peer, address, sizeof peer);
  return peer.nl_pid == 0 ? 0 : -ECONNREFUSED;
}

int RdmaNetlinkSocket::get_name(sockaddr* address, socklen_t* length) {
  const std::lock_guard lock(mutex_);
  put_address(asker_.port, address, length);
  return 0;
}

void NetlinkSocket::put_kernel_address(void* address, socklen_t* length) {
  put_address(0, address, length);
}

std::optional<int> RdmaNetlinkSocket::set_option(int /*descriptor*/, int level, int name, const void* value,
                                                 socklen_t length) {
  if (level != SOL_NETLINK) return std::nullopt;
  int number = 0;
  if (value == nullptr || length < sizeof number) return -EINVAL;
  std::memcpy(&number, value, sizeof number);
  const std::lock_guard lock(mutex_);
  switch (name) {
    case NETLINK_EXT_ACK:
      asker_.wants_extended_acks = number != 0;
      return 0;
    case NETLINK_CAP_ACK:
      asker_.wants_capped_acks = number != 0;
      return 0;
    case NETLINK_ADD_MEMBERSHIP:
    case NETLINK_DROP_MEMBERSHIP:
    case NETLINK_GET_STRICT_CHK:
    case NETLINK_NO_ENOBUFS:
      return 0;
    default:
      return -ENOPROTOOPT;
  }
}

std::vector<NetlinkBytes> RdmaNetlinkSocket::answer_locked(std::span<const uint8_t> bytes, int& /*error*/) {
  const KnownDevices devices(false);
  static_cast<void>(port_locked());
  return answer_netlink(bytes, asker_, {devices.facts(), programs_with, counters_of_programs});
}

ssize_t NetlinkSocket::send(std::span<const uint8_t> bytes) {
  if (bytes.size() > kMostRequestBytes) return -EMSGSIZE;
  const ErrnoKept kept;
  try {
    const std::lock_guard lock(mutex_);
    int error = 0;
    for (NetlinkBytes& answer : answer_locked(bytes, error)) waiting_.push_back(std::move(answer));
    refill_locked();
    return error == 0 ? static_cast<ssize_t>(bytes.size()) : error;
  } catch (const std::bad_alloc&) {
    return -ENOBUFS;
  }
}

ssize_t NetlinkSocket::send(const msghdr& message) {
  try {
    std::vector<uint8_t> bytes;
    for (const iovec& piece : std::span(message.msg_iov, message.msg_iovlen)) {
      if (piece.iov_len > kMostRequestBytes - bytes.size()) return -EMSGSIZE;
      const auto* const begin = static_cast<const uint8_t*>(piece.iov_base);
      bytes.insert(bytes.end(), begin, begin + piece.iov_len);
    }
    return send(bytes);
  } catch (const std::bad_alloc&) {
    return -ENOBUFS;
  }
}

ssize_t NetlinkSocket::write(const void* bytes, size_t length) {
  return send({static_cast<const uint8_t*>(bytes), length});
}

void NetlinkSocket::refill() {
  const ErrnoKept kept;
  const std::lock_guard lock(mutex_);
  refill_locked();
}

void NetlinkSocket::refill_locked() {
  while (!waiting_.empty()) {
    const NetlinkBytes& next = waiting_.front();
    const long sent = syscall(SYS_sendto, answers_.get(), next.data(), next.size(),
                              MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
    if (sent < 0) return;
    waiting_.pop_front();
  }
}

}  // namespace faultline::abi
