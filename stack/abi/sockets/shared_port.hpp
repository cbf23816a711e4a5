// SPDX-License-Identifier: BSD-3-Clause
// One port at 0.0.0.0 or `::` for several programs of a wire, as several hosts have it. The kernel refuses
// the second one, so that one has the port at its own address, which the kernel prefers to 0.0.0.0. Both
// sockets have SO_REUSEPORT, by which the kernel permits it (socket(7)). A socket of IPv6 alone, of which a
// wire's program has no address, has its port where nobody comes.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "stack/abi/sockets/port_holder.hpp"
#include "stack/abi/sockets/wire_address.hpp"

namespace faultline::abi {

/// A bind(2) between the two functions below.
struct PortBind {
  int socket = -1;
  WirePort wanted;  ///< protocol 0: the kernel alone decides
  SocketAddress address{};
  socklen_t length = 0;
  bool shares_by_itself = false;  ///< the program has set SO_REUSEPORT
  int errno_before = 0;
};

/// Before bind(2) with this address, its loopback form for a wire's. A TCP socket that shares its port by
/// itself does not do so during the call: the kernel would let it share with another host's.
[[nodiscard]] PortBind begin_bind(int socket, const sockaddr* address, socklen_t length);
/// After it. Returns the call's result, and leaves errno as the call does.
int end_bind(const PortBind& bind, int result);

/// Before connect(2) of TCP to the host's loopback address. A host of its own reaches its program there at a
/// port of 0.0.0.0. Where this host's program has the port at the host's address, since another host's has it
/// at 0.0.0.0, that address is in `mapped`. Returns its length; 0 if the call gets the address as it is.
[[nodiscard]] socklen_t lead_to_own_listener(int socket, const sockaddr* address, socklen_t length,
                                             SocketAddress& mapped);

/// After a successful listen(2): lets programs of other addresses have the port.
void share_listening_port(int socket);

}  // namespace faultline::abi
