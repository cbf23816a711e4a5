// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/sockets/netlink_sockets.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>

namespace faultline::abi {
namespace {

/// Calls call(NetlinkSocket&), which returns a negative errno on failure.
template <typename Result, typename Call>
Result with_socket(int number, Call call) {
  const std::shared_ptr<NetlinkSocket> socket = NetlinkSocket::find(number);
  const Result result = socket == nullptr ? -EBADF : call(*socket);
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

}  // namespace

bool is_open_netlink(int socket) {
  return NetlinkSocket::find(socket) != nullptr;
}

int connect_netlink(int socket, const sockaddr* address, socklen_t length) {
  return with_socket<int>(socket, [=](NetlinkSocket& own) { return own.connect(address, length); });
}

int bind_netlink(int socket, const sockaddr* address, socklen_t length) {
  return with_socket<int>(socket, [=](NetlinkSocket& own) { return own.bind(socket, address, length); });
}

std::optional<int> set_netlink_option(int socket, int level, int name, const void* value, socklen_t length) {
  const std::shared_ptr<NetlinkSocket> own = NetlinkSocket::find(socket);
  const std::optional<int> result =
      own == nullptr ? -EBADF : own->set_option(socket, level, name, value, length);
  if (!result || *result == 0) return result;
  errno = -*result;
  return -1;
}

int name_netlink(int socket, sockaddr* address, socklen_t* length) {
  return with_socket<int>(socket, [=](NetlinkSocket& own) { return own.get_name(address, length); });
}

ssize_t send_netlink(int socket, const void* bytes, size_t count) {
  return with_socket<ssize_t>(socket, [=](NetlinkSocket& own) { return own.write(bytes, count); });
}

ssize_t send_netlink(int socket, const msghdr* message) {
  return with_socket<ssize_t>(socket, [=](NetlinkSocket& own) { return own.send(*message); });
}

int send_netlink(int socket, mmsghdr* messages, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    const ssize_t sent = send_netlink(socket, &messages[i].msg_hdr);
    if (sent < 0) return i == 0 ? -1 : static_cast<int>(i);
    messages[i].msg_len = static_cast<unsigned>(sent);
  }
  return static_cast<int>(count);
}

ssize_t received_netlink(int socket, ssize_t result, void* address, socklen_t* length) {
  if (result < 0) return result;
  NetlinkSocket::put_kernel_address(address, length);
  if (const auto own = NetlinkSocket::find(socket)) own->refill();
  return result;
}

}  // namespace faultline::abi
