// SPDX-License-Identifier: BSD-3-Clause
// Socket calls on a descriptor of RDMA netlink, in the form of the C library: -1 with errno.
#pragma once

#include <optional>

#include <sys/socket.h>
#include <sys/types.h>

#include "stack/abi/netlink/socket.hpp"

namespace faultline::abi {

[[nodiscard]] bool is_open_netlink(int socket);
/// Costs one load in a process that has opened none.
[[nodiscard]] inline bool is_own_netlink(int socket) {
  return has_opened_netlink.load(std::memory_order_relaxed) && is_open_netlink(socket);
}

// Each requires is_own_netlink().

int connect_netlink(int socket, const sockaddr* address, socklen_t length);
int bind_netlink(int socket, const sockaddr* address, socklen_t length);
/// Returns nullopt for options that the descriptor itself has.
std::optional<int> set_netlink_option(int socket, int level, int name, const void* value, socklen_t length);
int name_netlink(int socket, sockaddr* address, socklen_t* length);
ssize_t send_netlink(int socket, const void* bytes, size_t count);
ssize_t send_netlink(int socket, const msghdr* message);
int send_netlink(int socket, mmsghdr* messages, unsigned count);
/// Ends a receive that returned `result`: makes room for the next answers, and writes the sender's address.
/// Returns `result`.
ssize_t received_netlink(int socket, ssize_t result, void* address, socklen_t* length);

}  // namespace faultline::abi
