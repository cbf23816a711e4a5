// SPDX-License-Identifier: BSD-3-Clause

#include "stack/abi/netlink/route_socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>

#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stack/abi/interfaces/own_interfaces.hpp"
#include "stack/abi/netlink/route_answers.hpp"
#include "stack/abi/tree/descriptor_table.hpp"
#include "stack/abi/tree/interface_statistics.hpp"
#include "stack/abi/tree/known_devices.hpp"

namespace faultline::abi {
namespace {

// System calls: the C library's functions are interposed on.

/// Returns 0, or a negative errno.
int result_of(long result) {
  return result < 0 ? -errno : 0;
}

void append(NetlinkBytes& to, const NetlinkBytes& message) {
  to.insert(to.end(), message.begin(), message.end());
}

/// Returns the first message of a datagram, with its padding; all of it if that is malformed.
std::span<const uint8_t> first_message(std::span<const uint8_t> bytes) {
  nlmsghdr header;
  if (bytes.size() < sizeof header) return bytes;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.nlmsg_len < sizeof header || header.nlmsg_len > bytes.size()) return bytes;
  return bytes.first(std::min<size_t>(NLMSG_ALIGN(header.nlmsg_len), bytes.size()));
}

/// Joins messages to datagrams that each fit into a program's buffer.
std::vector<NetlinkBytes> datagrams_of(const std::vector<NetlinkBytes>& messages) {
  std::vector<NetlinkBytes> datagrams;
  for (const NetlinkBytes& message : messages) {
    if (datagrams.empty() || datagrams.back().size() + message.size() > kMostMessageBytes)
      datagrams.emplace_back();
    append(datagrams.back(), message);
  }
  return datagrams;
}

}  // namespace

std::optional<int> open_route_netlink(int type) {
  if (!shows_interfaces()) return std::nullopt;
  UniqueFd kernel(static_cast<int>(syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)));
  if (kernel.get() < 0) return -1;
  return NetlinkSocket::open(type, [&](UniqueFd answers) {
    return std::make_shared<RouteNetlinkSocket>(std::move(answers), std::move(kernel));
  });
}

RouteNetlinkSocket::RouteNetlinkSocket(UniqueFd answers, UniqueFd kernel)
    : NetlinkSocket(std::move(answers)), kernel_(std::move(kernel)) {}

int RouteNetlinkSocket::hand_over(int descriptor) {
  const long flags = syscall(SYS_fcntl, descriptor, F_GETFD);
  const long status = syscall(SYS_fcntl, descriptor, F_GETFL);
  if (flags < 0 || status < 0) return -errno;
  syscall(SYS_fcntl, kernel_.get(), F_SETFL, status);
  if (syscall(SYS_dup3, kernel_.get(), descriptor, (flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0) < 0)
    return -errno;
  remove_descriptor(descriptor);
  return 0;
}

int RouteNetlinkSocket::bind(int descriptor, const sockaddr* address, socklen_t length) {
  sockaddr_nl wanted{};
  if (address != nullptr && length >= sizeof wanted) std::memcpy(&wanted, address, sizeof wanted);
  if (const int error = result_of(syscall(SYS_bind, kernel_.get(), address, length)); error != 0)
    return error;
  return wanted.nl_groups == 0 ? 0 : hand_over(descriptor);
}

int RouteNetlinkSocket::connect(const sockaddr* address, socklen_t length) {
  return result_of(syscall(SYS_connect, kernel_.get(), address, length));
}

int RouteNetlinkSocket::get_name(sockaddr* address, socklen_t* length) {
  return result_of(syscall(SYS_getsockname, kernel_.get(), address, length));
}

std::optional<int> RouteNetlinkSocket::set_option(int descriptor, int level, int name, const void* value,
                                                  socklen_t length) {
  if (level != SOL_NETLINK) return std::nullopt;
  if (const int error = result_of(syscall(SYS_setsockopt, kernel_.get(), level, name, value, length));
      error != 0)
    return error;
  return name == NETLINK_ADD_MEMBERSHIP || name == NETLINK_LISTEN_ALL_NSID ? hand_over(descriptor) : 0;
}

uint32_t RouteNetlinkSocket::port() const {
  sockaddr_nl own{};
  socklen_t length = sizeof own;
  return syscall(SYS_getsockname, kernel_.get(), &own, &length) == 0 ? own.nl_pid : 0;
}

std::vector<NetlinkBytes> RouteNetlinkSocket::ask_kernel(std::span<const uint8_t> bytes, int& error) const {
  std::vector<NetlinkBytes> datagrams;
  if (syscall(SYS_sendto, kernel_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL, nullptr, 0) < 0) {
    error = -errno;
    return datagrams;
  }
  // The kernel has answered when the send returns, and continues a dump at each receive. It makes datagrams
  // for a buffer of this size, which is the least that programs have.
  constexpr size_t kBufferBytes = 4096;
  while (true) {
    const long waits = syscall(SYS_recvfrom, kernel_.get(), nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT,
                               nullptr, nullptr);
    if (waits < 0 && errno == EINTR) continue;
    if (waits < 0) return datagrams;
    NetlinkBytes datagram(std::max(kBufferBytes, static_cast<size_t>(waits)));
    const long received = syscall(SYS_recvfrom, kernel_.get(), datagram.data(), datagram.size(), MSG_DONTWAIT,
                                  nullptr, nullptr);
    if (received < 0) continue;
    datagram.resize(static_cast<size_t>(received));
    datagrams.push_back(std::move(datagram));
  }
}

std::vector<NetlinkBytes> RouteNetlinkSocket::answer_locked(std::span<const uint8_t> bytes, int& error) {
  const std::vector<OwnInterface> interfaces = own_interfaces();
  // Binds the socket as a send does, so that our answers have its port.
  if (port() == 0) {
    sockaddr_nl own{};
    own.nl_family = AF_NETLINK;
    syscall(SYS_bind, kernel_.get(), &own, sizeof own);
  }
  std::vector<NetlinkBytes> answers;
  while (!bytes.empty() && error == 0) {
    const std::span<const uint8_t> message = first_message(bytes);
    for (NetlinkBytes& answer : answer_one(message, interfaces, error)) answers.push_back(std::move(answer));
    bytes = bytes.subspan(message.size());
  }
  return answers;
}

std::vector<NetlinkBytes> RouteNetlinkSocket::answer_one(std::span<const uint8_t> message,
                                                         std::span<const OwnInterface> interfaces,
                                                         int& error) const {
  const RouteAnswer answer = answer_route(message, port(), interfaces, [](const OwnInterface& own) {
    return interface_statistics(named_counters(counters_of_programs(own.device)));
  });
  std::vector<NetlinkBytes> datagrams = datagrams_of(answer.messages);
  if (!answer.asks_kernel) return datagrams;
  std::vector<NetlinkBytes> others = ask_kernel(message, error);
  if (error != 0 || others.empty()) return others;
  // Some programs read one datagram of a dump alone.
  if (datagrams.size() == 1 && datagrams[0].size() + others[0].size() <= kMostMessageBytes) {
    append(datagrams[0], others[0]);
    others.erase(others.begin());
  }
  datagrams.insert(datagrams.end(), std::make_move_iterator(others.begin()),
                   std::make_move_iterator(others.end()));
  return datagrams;
}

}  // namespace faultline::abi
