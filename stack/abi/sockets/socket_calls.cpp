// SPDX-License-Identifier: BSD-3-Clause
// The C library's names that pass socket addresses, in the drop-in. In a program on a wire the kernel gets
// the loopback form of a wire's address, and the program sees the wire's address.
//
// The next definitions of connect, accept, recvfrom and the like are cancellation points. So no function here
// is noexcept, and none has an object with a destructor around such a call.
//
// Addresses are read and written as the kernel would, within the program's lengths. Unlike the kernel, the
// library faults where a pointer is invalid, as the C library's functions of strings do.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "stack/abi/interpose/next_call.hpp"
#include "stack/abi/sockets/netlink_sockets.hpp"
#include "stack/abi/sockets/shared_port.hpp"
#include "stack/abi/sockets/wire_address.hpp"
#include "stack/abi/sockets/wire_sockets.hpp"

namespace faultline::abi {

namespace {

NextCall<int(int, const sockaddr*, socklen_t)> next_connect("connect"), next_bind("bind");
NextCall<int(int, int)> next_listen("listen");
NextCall<int(int, sockaddr*, socklen_t*)> next_accept("accept"), next_getsockname("getsockname"),
    next_getpeername("getpeername");
NextCall<int(int, sockaddr*, socklen_t*, int)> next_accept4("accept4");
NextCall<ssize_t(int, const void*, size_t, int, const sockaddr*, socklen_t)> next_sendto("sendto");
NextCall<ssize_t(int, const msghdr*, int)> next_sendmsg("sendmsg");
NextCall<int(int, mmsghdr*, unsigned, int)> next_sendmmsg("sendmmsg");
NextCall<ssize_t(int, void*, size_t, int, sockaddr*, socklen_t*)> next_recvfrom("recvfrom");
NextCall<ssize_t(int, void*, size_t, size_t, int, sockaddr*, socklen_t*)> next_recvfrom_chk("__recvfrom_chk");
NextCall<ssize_t(int, msghdr*, int)> next_recvmsg("recvmsg");
NextCall<int(int, mmsghdr*, unsigned, int, timespec*)> next_recvmmsg("recvmmsg");

// Looked up early: dlsym(3) takes the loader's lock, which a signal handler may have interrupted.
[[gnu::constructor]] void find_next_socket_calls() {
  next_connect.find();
  next_bind.find();
  next_listen.find();
  next_accept.find();
  next_accept4.find();
  next_getsockname.find();
  next_getpeername.find();
  next_sendto.find();
  next_sendmsg.find();
  next_sendmmsg.find();
  next_recvfrom.find();
  next_recvfrom_chk.find();
  next_recvmsg.find();
  next_recvmmsg.find();
}

/// True for a wire's address in a program on a wire.
bool is_wire_address(const void* address, socklen_t length) {
  SocketAddress mapped;
  return are_sockets_on_wire() && address != nullptr &&
         to_loopback(static_cast<const sockaddr*>(address), length, mapped) != 0;
}

/// Returns the length of the loopback form in `mapped`; 0 if the call gets the address as it is.
socklen_t map_address(int socket, const void* address, socklen_t length, SocketAddress& mapped) {
  if (!is_wire_address(address, length) || !is_tcp_or_udp(socket)) return 0;
  return to_loopback(static_cast<const sockaddr*>(address), length, mapped);
}

/// `room`: the number of bytes that the program has for the address, which the call has overwritten.
void map_back(void* address, const socklen_t* length, socklen_t room) {
  to_wire_address(static_cast<sockaddr*>(address), std::min(room, *length));
}

/// Gets a whole address where the program has too little room for one, since the kernel cuts it anywhere.
class WholeAddress {
 public:
  [[nodiscard]] static bool is_needed(socklen_t room) { return room < sizeof(SocketAddress); }
  sockaddr* place() { return &address_.any; }
  socklen_t* length() { return &length_; }
  /// As the kernel does: what fits, and the whole length.
  void give(void* address, socklen_t& length) {
    map_back(&address_, &length_, sizeof address_);
    std::memcpy(address, &address_, std::min(length, length_));
    length = length_;
  }

 private:
  SocketAddress address_;
  socklen_t length_ = sizeof(SocketAddress);
};

template <typename Result, typename Call>
Result receive(sockaddr* address, socklen_t* length, Call call) {
  if (!are_sockets_on_wire() || address == nullptr || length == nullptr) return call(address, length);
  const socklen_t room = *length;
  if (WholeAddress::is_needed(room)) {
    WholeAddress whole;
    const Result result = call(whole.place(), whole.length());
    if (result >= 0) whole.give(address, *length);
    return result;
  }
  const Result result = call(address, length);
  if (result >= 0) map_back(address, length, room);
  return result;
}

/// A message to a wire's address, as the kernel gets it.
struct MappedMessage {
  static constexpr size_t kControlBytes = 256;  ///< more than any program sends with a datagram
  SocketAddress address;
  alignas(cmsghdr) std::array<char, kControlBytes> control;
};

/// Replaces the address of `header` if it is a wire's, by memory of `mapped`, and names the source of the
/// datagram. The kernel would choose 127.0.0.1, from which a connected peer accepts nothing. A program that
/// has control data of its own chooses for itself.
bool map_message(int socket, msghdr& header, MappedMessage& mapped) {
  const socklen_t used = map_address(socket, header.msg_name, header.msg_namelen, mapped.address);
  if (used == 0) return false;
  header.msg_name = &mapped.address;
  header.msg_namelen = used;
  if (header.msg_controllen != 0) {
    if (header.msg_control == nullptr || header.msg_controllen > mapped.control.size()) return true;
    std::memcpy(mapped.control.data(), header.msg_control, header.msg_controllen);
    header.msg_control = mapped.control.data();
    control_to_loopback(header);
    return true;
  }
  const in_addr_t source = source_of_datagrams(socket);
  if (source == 0) return true;
  std::memset(mapped.control.data(), 0, CMSG_SPACE(sizeof(in_pktinfo)));
  header.msg_control = mapped.control.data();
  header.msg_controllen = CMSG_SPACE(sizeof(in_pktinfo));
  cmsghdr* const control = CMSG_FIRSTHDR(&header);
  control->cmsg_level = IPPROTO_IP;
  control->cmsg_type = IP_PKTINFO;
  control->cmsg_len = CMSG_LEN(sizeof(in_pktinfo));
  const in_pktinfo chosen{.ipi_ifindex = 0, .ipi_spec_dst = {source}, .ipi_addr = {}};
  std::memcpy(CMSG_DATA(control), &chosen, sizeof chosen);
  return true;
}

/// MSG_FASTOPEN: the call connects the socket (tcp(7)).
void bind_if_it_connects(int socket, const msghdr& message, int flags) {
  if ((flags & MSG_FASTOPEN) != 0 && is_wire_address(message.msg_name, message.msg_namelen) &&
      is_tcp_or_udp(socket))
    bind_to_own_address(socket);
}

/// recvmsg(2), with the sender's address as a wire's.
ssize_t receive_message(int socket, msghdr& message, int flags) {
  const socklen_t room = message.msg_namelen;
  if (message.msg_name == nullptr || !WholeAddress::is_needed(room)) {
    const ssize_t result = next_recvmsg(socket, &message, flags);
    if (result >= 0 && message.msg_name != nullptr) map_back(message.msg_name, &message.msg_namelen, room);
    return result;
  }
  WholeAddress whole;
  msghdr copy = message;
  copy.msg_name = whole.place();
  copy.msg_namelen = *whole.length();
  const ssize_t result = next_recvmsg(socket, &copy, flags);
  if (result < 0) return result;
  *whole.length() = copy.msg_namelen;
  message.msg_controllen = copy.msg_controllen;
  message.msg_flags = copy.msg_flags;
  whole.give(message.msg_name, message.msg_namelen);
  return result;
}

constexpr unsigned kMostMessages = 1024;  ///< UIO_MAXIOV: the kernel ignores more (sendmmsg(2), recvmmsg(2))

/// Sends up to kTogether messages, of which some have a wire's address.
constexpr unsigned kTogether = 16;
int send_mapped(int socket, mmsghdr* messages, unsigned count, int flags) {
  std::array<mmsghdr, kTogether> copies;
  std::array<MappedMessage, kTogether> mapped;
  for (unsigned i = 0; i < count; ++i) {
    copies[i] = messages[i];
    map_message(socket, copies[i].msg_hdr, mapped[i]);
  }
  const int sent = next_sendmmsg(socket, copies.data(), count, flags);
  for (int i = 0; i < sent; ++i) messages[i].msg_len = copies[static_cast<size_t>(i)].msg_len;
  return sent;
}

bool has_wire_address(const mmsghdr* messages, unsigned count) {
  return std::any_of(messages, messages + count, [](const mmsghdr& message) {
    return is_wire_address(message.msg_hdr.msg_name, message.msg_hdr.msg_namelen);
  });
}

}  // namespace

extern "C" {

int abi_connect(int socket, const sockaddr* address, socklen_t length) FAULTLINE_STANDS_BEFORE("connect");
int abi_connect(int socket, const sockaddr* address, socklen_t length) {
  if (is_own_netlink(socket)) return connect_netlink(socket, address, length);
  SocketAddress mapped;
  if (const socklen_t used = map_address(socket, address, length, mapped); used != 0) {
    bind_to_own_address(socket);
    return next_connect(socket, &mapped.any, used);
  }
  const socklen_t used =
      are_sockets_on_wire() ? lead_to_own_listener(socket, address, length, mapped) : socklen_t{0};
  return used == 0 ? next_connect(socket, address, length) : next_connect(socket, &mapped.any, used);
}

int abi_bind(int socket, const sockaddr* address, socklen_t length) FAULTLINE_STANDS_BEFORE("bind");
int abi_bind(int socket, const sockaddr* address, socklen_t length) {
  if (is_own_netlink(socket)) return bind_netlink(socket, address, length);
  SocketAddress mapped;
  const socklen_t used = map_address(socket, address, length, mapped);
  const sockaddr* const place = used == 0 ? address : &mapped.any;
  const socklen_t bytes = used == 0 ? length : used;
  if (!are_sockets_on_wire()) return next_bind(socket, place, bytes);
  const PortBind bind = begin_bind(socket, place, bytes);
  return end_bind(bind, next_bind(socket, place, bytes));
}

int abi_listen(int socket, int backlog) FAULTLINE_STANDS_BEFORE("listen");
int abi_listen(int socket, int backlog) {
  const int result = next_listen(socket, backlog);
  if (result == 0 && are_sockets_on_wire()) share_listening_port(socket);
  return result;
}

int abi_accept(int socket, sockaddr* address, socklen_t* length) FAULTLINE_STANDS_BEFORE("accept");
int abi_accept(int socket, sockaddr* address, socklen_t* length) {
  return receive<int>(address, length,
                      [=](sockaddr* place, socklen_t* bytes) { return next_accept(socket, place, bytes); });
}
int abi_accept4(int socket, sockaddr* address, socklen_t* length, int flags)
    FAULTLINE_STANDS_BEFORE("accept4");
int abi_accept4(int socket, sockaddr* address, socklen_t* length, int flags) {
  return receive<int>(address, length, [=](sockaddr* place, socklen_t* room) {
    return next_accept4(socket, place, room, flags);
  });
}
int abi_getsockname(int socket, sockaddr* address, socklen_t* length) FAULTLINE_STANDS_BEFORE("getsockname");
int abi_getsockname(int socket, sockaddr* address, socklen_t* length) {
  if (is_own_netlink(socket)) return name_netlink(socket, address, length);
  return receive<int>(address, length, [=](sockaddr* place, socklen_t* bytes) {
    return next_getsockname(socket, place, bytes);
  });
}
int abi_getpeername(int socket, sockaddr* address, socklen_t* length) FAULTLINE_STANDS_BEFORE("getpeername");
int abi_getpeername(int socket, sockaddr* address, socklen_t* length) {
  return receive<int>(address, length, [=](sockaddr* place, socklen_t* bytes) {
    return next_getpeername(socket, place, bytes);
  });
}

ssize_t abi_sendto(int socket, const void* bytes, size_t count, int flags, const sockaddr* address,
                   socklen_t length) FAULTLINE_STANDS_BEFORE("sendto");
ssize_t abi_sendto(int socket, const void* bytes, size_t count, int flags, const sockaddr* address,
                   socklen_t length) {
  if (is_own_netlink(socket)) return send_netlink(socket, bytes, count);
  if (!is_wire_address(address, length)) return next_sendto(socket, bytes, count, flags, address, length);
  iovec piece{.iov_base = const_cast<void*>(bytes), .iov_len = count};
  msghdr message{};
  message.msg_name = const_cast<sockaddr*>(address);
  message.msg_namelen = length;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  bind_if_it_connects(socket, message, flags);
  MappedMessage mapped;
  return map_message(socket, message, mapped) ? next_sendmsg(socket, &message, flags)
                                              : next_sendto(socket, bytes, count, flags, address, length);
}
ssize_t abi_sendmsg(int socket, const msghdr* message, int flags) FAULTLINE_STANDS_BEFORE("sendmsg");
ssize_t abi_sendmsg(int socket, const msghdr* message, int flags) {
  if (is_own_netlink(socket)) return send_netlink(socket, message);
  if (message == nullptr || !are_sockets_on_wire() ||
      !is_wire_address(message->msg_name, message->msg_namelen))
    return next_sendmsg(socket, message, flags);
  msghdr copy = *message;
  bind_if_it_connects(socket, copy, flags);
  MappedMessage mapped;
  return next_sendmsg(socket, map_message(socket, copy, mapped) ? &copy : message, flags);
}
int abi_sendmmsg(int socket, mmsghdr* messages, unsigned count, int flags)
    FAULTLINE_STANDS_BEFORE("sendmmsg");
int abi_sendmmsg(int socket, mmsghdr* messages, unsigned count, int flags) {
  count = std::min(count, kMostMessages);
  if (is_own_netlink(socket)) return send_netlink(socket, messages, count);
  if (messages == nullptr || !are_sockets_on_wire() || !has_wire_address(messages, count))
    return next_sendmmsg(socket, messages, count, flags);
  const int before = errno;
  unsigned all = 0;
  while (all < count) {
    const unsigned together = std::min(count - all, kTogether);
    const int sent = send_mapped(socket, messages + all, together, flags);
    if (sent < 0 && all == 0) return sent;
    if (sent < 0) errno = before;  // some are sent: the call succeeds
    all += static_cast<unsigned>(std::max(sent, 0));
    if (sent < static_cast<int>(together)) break;
  }
  return static_cast<int>(all);
}

ssize_t abi_recvfrom(int socket, void* bytes, size_t count, int flags, sockaddr* address, socklen_t* length)
    FAULTLINE_STANDS_BEFORE("recvfrom");
ssize_t abi_recvfrom(int socket, void* bytes, size_t count, int flags, sockaddr* address, socklen_t* length) {
  if (is_own_netlink(socket))
    return received_netlink(socket, next_recvfrom(socket, bytes, count, flags, nullptr, nullptr), address,
                            length);
  return receive<ssize_t>(address, length, [=](sockaddr* place, socklen_t* used) {
    return next_recvfrom(socket, bytes, count, flags, place, used);
  });
}
ssize_t abi_recvfrom_chk(int socket, void* bytes, size_t count, size_t room, int flags, sockaddr* address,
                         socklen_t* length) FAULTLINE_STANDS_BEFORE("__recvfrom_chk");
ssize_t abi_recvfrom_chk(int socket, void* bytes, size_t count, size_t room, int flags, sockaddr* address,
                         socklen_t* length) {
  if (is_own_netlink(socket))
    return received_netlink(socket, next_recvfrom_chk(socket, bytes, count, room, flags, nullptr, nullptr),
                            address, length);
  return receive<ssize_t>(address, length, [=](sockaddr* place, socklen_t* used) {
    return next_recvfrom_chk(socket, bytes, count, room, flags, place, used);
  });
}
ssize_t abi_recvmsg(int socket, msghdr* message, int flags) FAULTLINE_STANDS_BEFORE("recvmsg");
ssize_t abi_recvmsg(int socket, msghdr* message, int flags) {
  if (message != nullptr && is_own_netlink(socket)) {
    message->msg_namelen = std::min<socklen_t>(message->msg_namelen, sizeof(sockaddr_storage));
    const socklen_t room = message->msg_namelen;
    const ssize_t result = next_recvmsg(socket, message, flags);
    message->msg_namelen = room;
    return received_netlink(socket, result, message->msg_name, &message->msg_namelen);
  }
  if (message == nullptr || !are_sockets_on_wire()) return next_recvmsg(socket, message, flags);
  const ssize_t result = receive_message(socket, *message, flags);
  if (result >= 0 && message->msg_controllen != 0) control_to_wire_address(*message);
  return result;
}
int abi_recvmmsg(int socket, mmsghdr* messages, unsigned count, int flags, timespec* timeout)
    FAULTLINE_STANDS_BEFORE("recvmmsg");
int abi_recvmmsg(int socket, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  // One message is a permitted result (recvmmsg(2)).
  if (messages != nullptr && count > 0 && is_own_netlink(socket)) {
    const ssize_t bytes = abi_recvmsg(socket, &messages[0].msg_hdr, flags);
    if (bytes < 0) return -1;
    messages[0].msg_len = static_cast<unsigned>(bytes);
    return 1;
  }
  if (messages == nullptr || !are_sockets_on_wire())
    return next_recvmmsg(socket, messages, count, flags, timeout);
  // The kernel overwrites the lengths.
  count = std::min(count, kMostMessages);
  std::array<socklen_t, kMostMessages> rooms;
  for (unsigned i = 0; i < count; ++i) rooms[i] = messages[i].msg_hdr.msg_namelen;
  const int received = next_recvmmsg(socket, messages, count, flags, timeout);
  for (int i = 0; i < received; ++i) {
    msghdr& header = messages[i].msg_hdr;
    if (header.msg_name != nullptr)
      map_back(header.msg_name, &header.msg_namelen, rooms[static_cast<size_t>(i)]);
    if (header.msg_controllen != 0) control_to_wire_address(header);
  }
  return received;
}

}  // extern "C"

}  // namespace faultline::abi
