// SPDX-License-Identifier: BSD-3-Clause
// A wire's addresses in TCP and UDP. This program defines the C library's names, as the drop-in does, and is
// side b of a wire.
#include "stack/abi/sockets/wire_sockets.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pmd_glue/wires/wire_request.hpp"
#include "stack/abi/sockets/wire_address.hpp"
#include "stack/base/unique_fd.hpp"
#include "stack/verbs/objects/wire_address.hpp"
#include "wire_socket_tools.hpp"

namespace faultline::abi {
namespace {

constexpr int kErrnoBefore = 1234;

/// Accepts a connection; returns the peer's address by accept(2).
std::string accepted(int listener) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  const UniqueFd made(accept(listener, raw(peer), &length));
  EXPECT_TRUE(made);
  EXPECT_EQ(name(made.get(), getpeername), text_of(peer));
  return text_of(peer);
}
/// Receives a datagram; returns its source. A datagram over loopback arrives before its send returns.
std::string source(int socket, int flags = MSG_DONTWAIT) {
  std::array<char, 16> bytes;
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  EXPECT_GE(recvfrom(socket, bytes.data(), bytes.size(), flags, raw(peer), &length), 0);
  return text_of(peer);
}

TEST(WireAddress, EachHasOneLoopbackAddressAndNoOtherHas) {
  EXPECT_EQ(loopback_of(0xc6120001), 0x7f120001);
  EXPECT_EQ(loopback_of(0xc613fffe), 0x7f13fffe);
  EXPECT_EQ(wire_address_of(0x7f120001), 0xc6120001);
  EXPECT_EQ(wire_address_of(0x7f13fffe), 0xc613fffe);
  for (const uint32_t other : {0xc611ffffU, 0xc6140000U, 0x7f000001U, 0x7f120001U, 0U, ~0U})
    EXPECT_FALSE(loopback_of(other)) << other;
  for (const uint32_t other : {0x7f000001U, 0x7f11ffffU, 0x7f140000U, 0xc6120001U, 0U, ~0U})
    EXPECT_FALSE(wire_address_of(other)) << other;
}

TEST(WireAddress, IsMappedInTheLengthsThatTheKernelTakes) {
  SocketAddress mapped{};
  // At an odd address, with as much room as the longest length.
  std::array<uint8_t, sizeof(sockaddr_storage) + 2> room{};
  auto* const odd = reinterpret_cast<sockaddr*>(room.data() + 1);
  const sockaddr_in ipv4 = ipv4_address(kSideA, 7);
  std::memcpy(room.data() + 1, &ipv4, sizeof ipv4);
  for (socklen_t length = 0; length < sizeof ipv4; ++length) EXPECT_EQ(to_loopback(odd, length, mapped), 0U);
  for (socklen_t length = sizeof ipv4; length <= sizeof(sockaddr_storage); ++length)
    EXPECT_EQ(to_loopback(odd, length, mapped), sizeof ipv4);
  EXPECT_EQ(to_loopback(odd, sizeof(sockaddr_storage) + 1, mapped), 0U);
  EXPECT_EQ(mapped.ipv4.sin_addr.s_addr, htonl(0x7f120001));
  EXPECT_EQ(mapped.ipv4.sin_port, htons(7));

  const sockaddr_in6 ipv6 = mapped_address(kSideA, 7);
  std::memcpy(room.data() + 1, &ipv6, sizeof ipv6);
  for (socklen_t length = 0; length < 24; ++length) EXPECT_EQ(to_loopback(odd, length, mapped), 0U);
  for (socklen_t length = 24; length <= sizeof ipv6; ++length)
    EXPECT_EQ(to_loopback(odd, length, mapped), length);
  EXPECT_EQ(mapped.ipv6.sin6_addr.s6_addr32[3], htonl(0x7f120001));
  room[1 + 8] = 1;  // no longer IPv4-mapped
  EXPECT_EQ(to_loopback(odd, sizeof ipv6, mapped), 0U);
}

TEST(WireAddress, IsRestoredOnlyWhereTheProgramHasRoom) {
  for (socklen_t length = 0; length <= sizeof(sockaddr_in); ++length) {
    sockaddr_in address = ipv4_address(0x7f120001);
    to_wire_address(raw(address), length);
    EXPECT_EQ(ntohl(address.sin_addr.s_addr), length < 8 ? 0x7f120001 : kSideA) << length;
  }
  for (socklen_t length = 0; length <= sizeof(sockaddr_in6); ++length) {
    sockaddr_in6 address = mapped_address(0x7f120001);
    to_wire_address(raw(address), length);
    EXPECT_EQ(ntohl(address.sin6_addr.s6_addr32[3]), length < 24 ? 0x7f120001 : kSideA) << length;
  }
}

TEST(WireAddress, IsRequestedAsTheWireReadsTheRequest) {
  for (char side = 'a'; side <= 'z'; ++side) {
    std::string error;
    const std::string request = std::string("w0,side=") + side;
    EXPECT_EQ(requested_address(request), glue::parse_wire_request(request, error)->ipv4);
  }
  EXPECT_EQ(requested_address("w0,ip=198.19.3.4"), 0xc6130304);
  EXPECT_EQ(requested_address("w0,ip=198.19.3.4,share"), 0xc6130304);
  EXPECT_EQ(requested_address("w0,share,side=c"), 0xc6120003);
  EXPECT_EQ(requested_address("w0,share"), 0xc61200ff);
  for (const char* const none : {"", "w0", ",", "w0,side=", "w0,side=ab", "w0,ip=", "w0,ip=10.0.0.1",
                                 "w0,ip=198.18.0.1111111111111111", "w0,ip=198.18.0.1/24", "w0,side"})
    EXPECT_EQ(requested_address(none), 0U) << none;
}

TEST(WireSockets, OnlySocketsOfTheKernelAreTcpOrUdp) {
  EXPECT_TRUE(is_tcp_or_udp(socket_of(AF_INET, SOCK_STREAM).get()));
  EXPECT_TRUE(is_tcp_or_udp(socket_of(AF_INET6, SOCK_DGRAM).get()));
  EXPECT_FALSE(is_tcp_or_udp(socket_of(AF_UNIX, SOCK_STREAM).get()));
  EXPECT_FALSE(is_tcp_or_udp(UniqueFd(open("/dev/null", O_RDWR)).get()));  // as librspreload's
  EXPECT_FALSE(is_tcp_or_udp(-1));
}

TEST(WireSockets, TcpNamesTheAddressesAsTyped) {
  const UniqueFd server = listener_at(kSideA);
  EXPECT_EQ(name(server.get(), getsockname), "198.18.0.1");
  const UniqueFd client = connected_to(kSideA, port_of(server.get()));
  EXPECT_EQ(name(client.get(), getpeername), "198.18.0.1");
  EXPECT_EQ(name(client.get(), getsockname), "198.18.0.2");
  EXPECT_EQ(accepted(server.get()), "198.18.0.2");
}

TEST(WireSockets, TwoAddressesHaveAPortEach) {
  const UniqueFd one = listener_at(kSideA);
  const UniqueFd two = listener_at(kSideB, port_of(one.get()));
  const UniqueFd client = connected_to(kSideB, port_of(one.get()));
  EXPECT_EQ(accepted(two.get()), "198.18.0.2");
}

TEST(WireSockets, AServerOfEachAddressIsReachedAtTheWiresAddressAndAtLocalhost) {
  const UniqueFd server = listener_at(INADDR_ANY);
  EXPECT_EQ(name(server.get(), getsockname), "0.0.0.0");
  const UniqueFd one = connected_to(kSideA, port_of(server.get()));
  EXPECT_EQ(accepted(server.get()), "198.18.0.2");
  const UniqueFd other = connected_to(kLocalhost, port_of(server.get()));
  EXPECT_EQ(name(other.get(), getsockname), "127.0.0.1");
  EXPECT_EQ(accepted(server.get()), "127.0.0.1");
}

TEST(WireSockets, AnIpv6SocketTakesTheMappedForm) {
  const UniqueFd server = socket_of(AF_INET6, SOCK_STREAM);
  const sockaddr_in6 any = {
      .sin6_family = AF_INET6, .sin6_port = 0, .sin6_flowinfo = 0, .sin6_addr = {}, .sin6_scope_id = 0};
  if (!server || bind(server.get(), raw(any), sizeof any) != 0) GTEST_SKIP() << "this host has no IPv6";
  ASSERT_EQ(listen(server.get(), 4), 0);
  const UniqueFd client = socket_of(AF_INET6, SOCK_STREAM);
  const sockaddr_in6 to = mapped_address(kSideA, port_of(server.get()));
  ASSERT_EQ(connect(client.get(), raw(to), sizeof to), 0) << std::strerror(errno);
  EXPECT_EQ(name(client.get(), getpeername), "::ffff:198.18.0.1");
  EXPECT_EQ(accepted(server.get()), "::ffff:198.18.0.2");
}

TEST(WireSockets, TheSourceIsTheProgramsUnlessItIsBound) {
  const UniqueFd server = listener_at(kSideA);
  const UniqueFd bound = bound_to(0xc6120007, SOCK_STREAM);
  const sockaddr_in to = ipv4_address(kSideA, port_of(server.get()));
  ASSERT_EQ(connect(bound.get(), raw(to), sizeof to), 0);
  EXPECT_EQ(accepted(server.get()), "198.18.0.7");

  // The attachment has the address that the wire has assigned. A child has no attachment.
  verbs::set_wire_address(0xc6120009);
  const UniqueFd attached = connected_to(kSideA, port_of(server.get()));
  EXPECT_EQ(accepted(server.get()), "198.18.0.9");
  const pid_t child = fork();
  if (child == 0) {
    const UniqueFd own = connected_to(kSideA, port_of(server.get()));
    _exit(name(own.get(), getsockname) == "198.18.0.2" ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  verbs::set_wire_address(0);

  int option = -1;
  socklen_t length = sizeof option;
  ASSERT_EQ(getsockopt(attached.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &option, &length), 0);
  EXPECT_EQ(option, 0);
}

TEST(WireSockets, DatagramsAndTheirAnswersHaveTheAddressesAsTyped) {
  // Both are bound to each address, as programs of UDP usually are.
  const UniqueFd server = bound_to(INADDR_ANY, SOCK_DGRAM);
  const UniqueFd client = socket_of(AF_INET, SOCK_DGRAM);
  const sockaddr_in to = ipv4_address(kSideB, port_of(server.get()));
  ASSERT_EQ(sendto(client.get(), "x", 1, 0, raw(to), sizeof to), 1);
  EXPECT_EQ(source(server.get()), "198.18.0.2");
  const auto answer_to = [&](const UniqueFd& socket) {
    const sockaddr_in address = ipv4_address(kSideB, port_of(socket.get()));
    ASSERT_EQ(sendto(server.get(), "y", 1, 0, raw(address), sizeof address), 1);
    EXPECT_EQ(source(socket.get()), "198.18.0.2");
  };
  answer_to(client);
  // A connected socket accepts the peer's datagrams only.
  const UniqueFd connected = connected_to(kSideB, port_of(server.get()), SOCK_DGRAM);
  ASSERT_EQ(send(connected.get(), "z", 1, 0), 1);
  EXPECT_EQ(source(server.get()), "198.18.0.2");
  answer_to(connected);
}

TEST(WireSockets, EachMessageOfAListHasItsAddress) {
  constexpr size_t kCount = 40;  // more than are mapped together
  const std::array<UniqueFd, 2> servers{bound_to(kSideA, SOCK_DGRAM), bound_to(kLocalhost, SOCK_DGRAM)};
  const UniqueFd client = bound_to(0xc6120005, SOCK_DGRAM);
  std::array<sockaddr_in, 2> to{ipv4_address(kSideA, port_of(servers[0].get())),
                                ipv4_address(kLocalhost, port_of(servers[1].get()))};
  std::array<std::array<char, 64>, kCount> bytes{};
  std::array<iovec, kCount> pieces;
  std::array<mmsghdr, kCount> messages{};
  for (size_t i = 0; i < kCount; ++i) {
    bytes[i][0] = static_cast<char>(i);
    pieces[i] = {.iov_base = bytes[i].data(), .iov_len = i + 1};
    messages[i].msg_hdr.msg_name = &to[i % 2];
    messages[i].msg_hdr.msg_namelen = sizeof to[0];
    messages[i].msg_hdr.msg_iov = &pieces[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  ASSERT_EQ(sendmmsg(client.get(), messages.data(), kCount, 0), static_cast<int>(kCount));
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(messages[i].msg_len, i + 1);
  EXPECT_EQ(to[0].sin_addr.s_addr, htonl(kSideA)) << "the program's memory has changed";

  std::array<sockaddr_storage, kCount> sources{};
  for (size_t side = 0; side < 2; ++side) {
    for (size_t i = 0; i < kCount; ++i) {
      pieces[i].iov_len = bytes[i].size();
      messages[i].msg_hdr.msg_name = &sources[i];
      messages[i].msg_hdr.msg_namelen = sizeof sources[i];
    }
    ASSERT_EQ(recvmmsg(servers[side].get(), messages.data(), kCount, MSG_DONTWAIT, nullptr),
              static_cast<int>(kCount / 2));
    for (size_t i = 0; i < kCount / 2; ++i) {
      EXPECT_EQ(messages[i].msg_len, 2 * i + side + 1);
      EXPECT_EQ(text_of(sources[i]), "198.18.0.5");
    }
  }
}

TEST(WireSockets, AMessageWithControlDataKeepsIt) {
  const UniqueFd server = bound_to(kSideA, SOCK_DGRAM);
  const UniqueFd client = socket_of(AF_INET, SOCK_DGRAM);
  sockaddr_in to = ipv4_address(kSideA, port_of(server.get()));
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(in_pktinfo))> control{};
  char byte = 'x';
  iovec piece{.iov_base = &byte, .iov_len = 1};
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = sizeof to;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  ASSERT_EQ(sendmsg(client.get(), &message, 0), 1);
  EXPECT_EQ(source(server.get()), "198.18.0.2");

  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = IPPROTO_IP;
  header->cmsg_type = IP_PKTINFO;
  header->cmsg_len = CMSG_LEN(sizeof(in_pktinfo));
  const in_pktinfo chosen{.ipi_ifindex = 0, .ipi_spec_dst = {htonl(0x7f120008)}, .ipi_addr = {}};
  std::memcpy(CMSG_DATA(header), &chosen, sizeof chosen);
  ASSERT_EQ(sendmsg(client.get(), &message, 0), 1);
  sockaddr_storage from{};
  message = {};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  ASSERT_EQ(recvmsg(server.get(), &message, 0), 1);
  EXPECT_EQ(text_of(from), "198.18.0.8");
}

TEST(WireSockets, ErrnoAndShortAddressesAreTheKernels) {
  const UniqueFd server = listener_at(kSideA);
  const sockaddr_in to = ipv4_address(kSideA, port_of(server.get()));
  const UniqueFd client = socket_of(AF_INET, SOCK_STREAM);
  EXPECT_EQ(connect(client.get(), raw(to), sizeof to - 1), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(bind(client.get(), raw(to), 0), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(connect(client.get(), nullptr, sizeof to), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(connect(-1, raw(to), sizeof to), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(sendmsg(client.get(), nullptr, 0), -1);
  EXPECT_EQ(errno, EFAULT);
  errno = kErrnoBefore;
  EXPECT_EQ(connect(client.get(), raw(to), sizeof to), 0);
  EXPECT_EQ(errno, kErrnoBefore);
  EXPECT_EQ(accepted(server.get()), "198.18.0.2");
  EXPECT_EQ(errno, kErrnoBefore);
  EXPECT_EQ(connect(client.get(), raw(to), sizeof to), -1);
  EXPECT_EQ(errno, EISCONN);
}

TEST(WireSockets, AnAddressThatIsCutOffIsAWiresToo) {
  const UniqueFd server = listener_at(kSideA);
  const UniqueFd client = connected_to(kSideA, port_of(server.get()));
  const sockaddr_in whole = ipv4_address(kSideA, port_of(server.get()));
  for (socklen_t room = 0; room <= sizeof whole; ++room) {
    std::array<uint8_t, sizeof whole + 1> bytes{};
    bytes.fill(0xee);
    socklen_t length = room;
    ASSERT_EQ(getpeername(client.get(), reinterpret_cast<sockaddr*>(bytes.data()), &length), 0);
    EXPECT_EQ(length, sizeof whole);
    EXPECT_EQ(std::memcmp(bytes.data(), &whole, room), 0) << room;
    EXPECT_EQ(bytes[room], 0xee) << "beyond the program's room";
  }
}

/// A datagram that is received, with room for a sender's address and for control messages.
struct Received {
  char byte = 0;
  sockaddr_storage from{};
  iovec piece{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, 128> control{};

  msghdr message(socklen_t room = sizeof(sockaddr_storage)) {
    msghdr made{};
    made.msg_name = &from;
    made.msg_namelen = room;
    made.msg_iov = &piece;
    made.msg_iovlen = 1;
    made.msg_control = control.data();
    made.msg_controllen = control.size();
    return made;
  }
};

TEST(WireSockets, EachMessageOfAListHasRoomOfItsOwn) {
  const UniqueFd server = bound_to(kSideA, SOCK_DGRAM);
  const UniqueFd client = connected_to(kSideA, port_of(server.get()), SOCK_DGRAM);
  std::array<Received, 2> received;
  std::array<mmsghdr, 2> messages{};
  messages[0].msg_hdr = received[0].message();
  messages[1].msg_hdr = received[1].message(2);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(send(client.get(), "x", 1, 0), 1);
  ASSERT_EQ(recvmmsg(server.get(), messages.data(), 2, MSG_DONTWAIT, nullptr), 2);
  EXPECT_EQ(text_of(received[0].from), "198.18.0.2");
  EXPECT_EQ(received[1].from.ss_family, AF_INET);

  ASSERT_EQ(send(client.get(), "x", 1, 0), 1);
  msghdr cut = received[0].message(6);
  received[0].from = {};
  ASSERT_EQ(recvmsg(server.get(), &cut, MSG_DONTWAIT), 1);
  EXPECT_EQ(cut.msg_namelen, sizeof(sockaddr_in));
  EXPECT_EQ(std::memcmp(reinterpret_cast<const char*>(&received[0].from) + 4, "\xc6\x12\0\0", 4), 0)
      << "198.18, and what lies beyond the room";
}

TEST(WireSockets, PacketInformationHasTheAddressesAsTyped) {
  const UniqueFd server = bound_to(INADDR_ANY, SOCK_DGRAM);
  const int on = 1;
  ASSERT_EQ(setsockopt(server.get(), IPPROTO_IP, IP_PKTINFO, &on, sizeof on), 0);
  const UniqueFd client = connected_to(0xc6120007, port_of(server.get()), SOCK_DGRAM);
  ASSERT_EQ(send(client.get(), "x", 1, 0), 1);
  Received asked;
  msghdr message = asked.message();
  ASSERT_EQ(recvmsg(server.get(), &message, MSG_DONTWAIT), 1);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  ASSERT_NE(header, nullptr);
  ASSERT_EQ(header->cmsg_type, IP_PKTINFO);
  in_pktinfo information{};
  std::memcpy(&information, CMSG_DATA(header), sizeof information);
  EXPECT_EQ(ntohl(information.ipi_addr.s_addr), 0xc6120007);
  EXPECT_EQ(ntohl(information.ipi_spec_dst.s_addr), 0xc6120007);

  // An answer with the same information comes from the address that was asked. The connected client accepts
  // no other.
  information.ipi_ifindex = 0;
  std::memcpy(CMSG_DATA(header), &information, sizeof information);
  message.msg_controllen = CMSG_SPACE(sizeof information);
  ASSERT_EQ(sendmsg(server.get(), &message, 0), 1);
  std::memcpy(&information, CMSG_DATA(header), sizeof information);
  EXPECT_EQ(ntohl(information.ipi_spec_dst.s_addr), 0xc6120007) << "the program's memory has changed";
  char byte = 0;
  EXPECT_EQ(recv(client.get(), &byte, 1, MSG_DONTWAIT), 1) << std::strerror(errno);
}

TEST(WireSockets, AConnectionThatADatagramCallOpensIsTheProgramsToo) {
  const UniqueFd server = listener_at(kSideA);
  const sockaddr_in to = ipv4_address(kSideA, port_of(server.get()));
  const UniqueFd client = socket_of(AF_INET, SOCK_STREAM);
  ASSERT_EQ(sendto(client.get(), "x", 1, MSG_FASTOPEN, raw(to), sizeof to), 1) << std::strerror(errno);
  EXPECT_EQ(accepted(server.get()), "198.18.0.2");
}

TEST(WireSockets, UnixSocketsAreLeftAlone) {
  const UniqueFd server = socket_of(AF_UNIX, SOCK_STREAM);
  const sockaddr_un any{.sun_family = AF_UNIX, .sun_path = {}};
  ASSERT_EQ(bind(server.get(), raw(any), sizeof(sa_family_t)), 0);  // the kernel chooses an abstract name
  ASSERT_EQ(listen(server.get(), 1), 0);
  sockaddr_un name{};
  socklen_t length = sizeof name;
  ASSERT_EQ(getsockname(server.get(), raw(name), &length), 0);
  const UniqueFd client = socket_of(AF_UNIX, SOCK_STREAM);
  EXPECT_EQ(connect(client.get(), raw(name), length), 0) << std::strerror(errno);
}

/// Returns whether a thread that waits in `wait` can be cancelled.
bool is_cancelled(void* (*wait)(void*), const UniqueFd& socket) {
  pthread_t thread{};
  int number = socket.get();
  EXPECT_EQ(pthread_create(&thread, nullptr, wait, &number), 0);
  EXPECT_EQ(pthread_cancel(thread), 0);
  void* result = nullptr;
  EXPECT_EQ(pthread_join(thread, &result), 0);
  return result == PTHREAD_CANCELED;
}

TEST(WireSockets, AWaitForAConnectionOrADatagramIsACancellationPoint) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer reports the stack of a cancelled thread";
#endif
  const auto wait_for_connection = [](void* socket) -> void* {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    accept(*static_cast<int*>(socket), raw(peer), &length);
    return nullptr;
  };
  const auto wait_for_datagram = [](void* socket) -> void* {
    source(*static_cast<int*>(socket), 0);
    return nullptr;
  };
  EXPECT_TRUE(is_cancelled(wait_for_connection, listener_at(kSideA)));
  EXPECT_TRUE(is_cancelled(wait_for_datagram, bound_to(kSideA, SOCK_DGRAM)));
}

TEST(WireSockets, ASignalHandlerMaySend) {
  static int sender;
  static sockaddr_in to;
  const UniqueFd server = bound_to(kSideA, SOCK_DGRAM);
  const UniqueFd client = socket_of(AF_INET, SOCK_DGRAM);
  sender = client.get();
  to = ipv4_address(kSideA, port_of(server.get()));
  struct sigaction action {};
  action.sa_handler = [](int) { sendto(sender, "x", 1, 0, raw(to), sizeof to); };
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  raise(SIGUSR1);
  EXPECT_EQ(source(server.get()), "198.18.0.2");
}

}  // namespace
}  // namespace faultline::abi

int main(int argc, char** argv) {
  const int held = faultline::abi::hold_port_if_asked(argc, argv);
  if (held >= 0) return held;
  setenv("FAULTLINE_WIRE", "unit,side=b", 1);
  unsetenv("FAULTLINE_WIRE_SOCKETS");
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
