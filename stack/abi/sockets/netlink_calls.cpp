// SPDX-License-Identifier: BSD-3-Clause
// The C library's names that sockets of netlink need besides those with addresses, in the drop-in. The next
// definitions of send and recv are cancellation points, as in socket_calls.cpp.
#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <string_view>

#include <linux/netlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include "stack/abi/interfaces/own_interfaces.hpp"
#include "stack/abi/interpose/next_call.hpp"
#include "stack/abi/netlink/route_socket.hpp"
#include "stack/abi/sockets/interface_option.hpp"
#include "stack/abi/sockets/netlink_sockets.hpp"
#include "stack/abi/sockets/wire_sockets.hpp"

namespace faultline::abi {

namespace {

NextCall<int(int, int, int)> next_socket("socket");
NextCall<int(int, int, int, const void*, socklen_t)> next_setsockopt("setsockopt");
NextCall<ssize_t(int, const void*, size_t, int)> next_send("send");
NextCall<ssize_t(int, void*, size_t, int)> next_recv("recv");
NextCall<ssize_t(int, void*, size_t, size_t, int)> next_recv_chk("__recv_chk");

bool is_wire_interface(const void* name, socklen_t length) {
  if (name == nullptr || !are_sockets_on_wire()) return false;
  const auto* const text = static_cast<const char*>(name);
  try {
    return is_own_interface({text, strnlen(text, std::min<size_t>(length, IF_NAMESIZE))});
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Looked up early: dlsym(3) takes the loader's lock, which a signal handler may have interrupted.
[[gnu::constructor]] void find_next_netlink_calls() {
  next_socket.find();
  next_setsockopt.find();
  next_send.find();
  next_recv.find();
  next_recv_chk.find();
}

}  // namespace

extern "C" {

int abi_socket(int domain, int type, int protocol) FAULTLINE_STANDS_BEFORE("socket");
int abi_socket(int domain, int type, int protocol) {
  if (domain == AF_NETLINK && protocol == NETLINK_RDMA)
    if (const std::optional<int> own = open_rdma_netlink(type)) return *own;
  if (domain == AF_NETLINK && protocol == NETLINK_ROUTE)
    if (const std::optional<int> own = open_route_netlink(type)) return *own;
  return next_socket(domain, type, protocol);
}

int abi_setsockopt(int socket, int level, int name, const void* value, socklen_t length)
    FAULTLINE_STANDS_BEFORE("setsockopt");
int abi_setsockopt(int socket, int level, int name, const void* value, socklen_t length) {
  if (is_own_netlink(socket))
    if (const std::optional<int> own = set_netlink_option(socket, level, name, value, length)) return *own;
  // The way to a wire's addresses is the kernel's loopback interface.
  constexpr std::string_view kLoopback = "lo";
  if (level == SOL_SOCKET && name == SO_BINDTODEVICE && is_wire_interface(value, length))
    return next_setsockopt(socket, level, name, kLoopback.data(), static_cast<socklen_t>(kLoopback.size()));
  InterfaceOption option;
  if (are_sockets_on_wire() && option.map(level, name, value, length))
    return next_setsockopt(socket, level, name, option.value(), length);
  return next_setsockopt(socket, level, name, value, length);
}

ssize_t abi_send(int socket, const void* bytes, size_t count, int flags) FAULTLINE_STANDS_BEFORE("send");
ssize_t abi_send(int socket, const void* bytes, size_t count, int flags) {
  if (is_own_netlink(socket)) return send_netlink(socket, bytes, count);
  return next_send(socket, bytes, count, flags);
}

ssize_t abi_recv(int socket, void* bytes, size_t count, int flags) FAULTLINE_STANDS_BEFORE("recv");
ssize_t abi_recv(int socket, void* bytes, size_t count, int flags) {
  const ssize_t result = next_recv(socket, bytes, count, flags);
  return is_own_netlink(socket) ? received_netlink(socket, result, nullptr, nullptr) : result;
}
ssize_t abi_recv_chk(int socket, void* bytes, size_t count, size_t room, int flags)
    FAULTLINE_STANDS_BEFORE("__recv_chk");
ssize_t abi_recv_chk(int socket, void* bytes, size_t count, size_t room, int flags) {
  const ssize_t result = next_recv_chk(socket, bytes, count, room, flags);
  return is_own_netlink(socket) ? received_netlink(socket, result, nullptr, nullptr) : result;
}

}  // extern "C"

}  // namespace faultline::abi
