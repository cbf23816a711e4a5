// SPDX-License-Identifier: BSD-3-Clause
// The ioctl(2) requests of sockets (netdevice(7)), which the drop-in may answer.
#pragma once

#include <atomic>
#include <optional>

namespace faultline::abi {

/// The numbers of SIOC*: include/uapi/linux/sockios.h.
[[nodiscard]] constexpr bool is_socket_request(unsigned long request) {
  constexpr unsigned long kSocketRequests = 0x8900, kNumbers = 0xff;
  return (request & ~kNumbers) == kSocketRequests;
}

/// Returns the result of the call, with errno; nullopt if the request is the kernel's.
using SocketIoctl = std::optional<int> (*)(int socket, unsigned long request, void* argument);

/// Set by the drop-in. nullptr: every request is the kernel's.
inline constinit std::atomic<SocketIoctl> socket_ioctl{nullptr};

}  // namespace faultline::abi
