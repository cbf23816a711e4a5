// SPDX-License-Identifier: BSD-3-Clause
// One port of TCP for programs of several addresses of a wire. This program is side b.
#include <array>
#include <cerrno>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire_socket_tools.hpp"

namespace faultline::abi {
namespace {

/// Another program of the wire, which listens at a port of every address; see hold_port().
class OtherProgram {
 public:
  static constexpr const char* kAlone = "alone";
  static constexpr const char* kShared = "shared";
  static constexpr const char* kIpv6Alone = "ipv6-alone";

  OtherProgram(const char* side, uint16_t port, const char* how) {
    std::array<int, 2> input{}, output{};
    EXPECT_EQ(pipe2(input.data(), O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(output.data(), O_CLOEXEC), 0);
    const std::string request = std::string("FAULTLINE_WIRE=unit,side=") + side;
    const std::string number = std::to_string(port);
    const std::array<const char*, 5> words{"other", kHoldPort, number.c_str(), how, nullptr};
    const std::array<const char*, 2> variables{request.c_str(), nullptr};
    process_ = fork();
    if (process_ == 0) {
      dup2(input[0], STDIN_FILENO);
      dup2(output[1], STDOUT_FILENO);
      execve("/proc/self/exe", const_cast<char* const*>(words.data()),
             const_cast<char* const*>(variables.data()));
      _exit(1);
    }
    close(input[0]);
    close(output[1]);
    input_ = UniqueFd(input[1]);
    char byte = 0;
    EXPECT_EQ(read(output[0], &byte, 1), 1) << "it holds the port";
    close(output[0]);
  }
  OtherProgram(const OtherProgram&) = delete;
  OtherProgram& operator=(const OtherProgram&) = delete;
  ~OtherProgram() {
    input_.reset();
    int status = 0;
    EXPECT_EQ(waitpid(process_, &status, 0), process_);
    EXPECT_EQ(status, 0);
  }

  static constexpr const char* kHoldPort = "--hold-port";

 private:
  pid_t process_ = -1;
  UniqueFd input_;
};

void share(int socket) {
  const int on = 1;
  EXPECT_EQ(setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), 0);
}
/// Binds to `::` without IPv4, and listens; returns errno.
int listen_at_ipv6_alone(int socket, uint16_t port) {
  const int on = 1;
  EXPECT_EQ(setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on), 0);
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(port);
  return bind(socket, raw(any), sizeof any) == 0 && listen(socket, 4) == 0 ? 0 : errno;
}
/// Binds and listens; returns errno.
int listen_at(int socket, uint32_t ipv4, uint16_t port) {
  const sockaddr_in address = ipv4_address(ipv4, port);
  return bind(socket, raw(address), sizeof address) == 0 && listen(socket, 4) == 0 ? 0 : errno;
}

int hold_port(uint16_t port, std::string_view how) {
  const bool is_ipv6 = how == OtherProgram::kIpv6Alone;
  const UniqueFd socket = socket_of(is_ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM);
  if (how == OtherProgram::kShared) share(socket.get());
  const int error =
      is_ipv6 ? listen_at_ipv6_alone(socket.get(), port) : listen_at(socket.get(), INADDR_ANY, port);
  if (error != 0) return 1;
  char byte = 0;
  if (write(STDOUT_FILENO, &byte, 1) != 1) return 1;
  return static_cast<int>(read(STDIN_FILENO, &byte, 1));
}

/// Connects, and returns the errno.
template <typename Address>
int connect_by(const UniqueFd& socket, const Address& address) {
  return connect(socket.get(), raw(address), sizeof address) == 0 ? 0 : errno;
}
sockaddr_in6 ipv6_localhost(uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  address.sin6_port = htons(port);
  return address;
}

/// Below the ports that the kernel gives out by itself (ip(7)), so that no connection takes it meanwhile.
uint16_t free_port() {
  std::random_device chance;
  for (;;) {
    const auto port = static_cast<uint16_t>(10'000 + chance() % 22'000);
    const UniqueFd held = socket_of(AF_INET, SOCK_STREAM);
    const sockaddr_in address = ipv4_address(INADDR_ANY, port);
    if (bind(held.get(), raw(address), sizeof address) == 0 && name(held.get(), getsockname) == "0.0.0.0")
      return port;
  }
}
TEST(WireSockets, APortOfAnotherHostsProgramIsFreeAtTheOwnAddress) {
  const uint16_t port = free_port();
  const OtherProgram other("a", port, OtherProgram::kAlone);
  // A connection has the port of its listener, and does not keep the next listener from it.
  std::vector<UniqueFd> connections;
  for (const uint32_t place : {uint32_t{INADDR_ANY}, kSideB}) {
    const UniqueFd server = socket_of(AF_INET, SOCK_STREAM);
    ASSERT_EQ(listen_at(server.get(), place, port), 0);
    EXPECT_EQ(name(server.get(), getsockname), "198.18.0.2");
    connections.push_back(connected_to(kSideA, port));
    connections.push_back(connected_to(kSideB, port));
    EXPECT_EQ(fcntl(server.get(), F_SETFL, O_NONBLOCK), 0);
    connections.emplace_back(accept(server.get(), nullptr, nullptr));
    EXPECT_TRUE(connections.back());
    EXPECT_EQ(accept(server.get(), nullptr, nullptr), -1) << "the other has its own";
  }
  const UniqueFd server = socket_of(AF_INET, SOCK_STREAM);
  EXPECT_EQ(listen_at(server.get(), kLocalhost, port), EADDRINUSE) << "that address is the host's";
}

TEST(WireSockets, APortOfIpv6AloneIsAHostsOwnToo) {
  const uint16_t port = free_port();
  const OtherProgram other("a", port, OtherProgram::kIpv6Alone);
  // As servers do that have a socket for each family.
  const UniqueFd ipv4 = socket_of(AF_INET, SOCK_STREAM);
  const UniqueFd ipv6 = socket_of(AF_INET6, SOCK_STREAM);
  EXPECT_EQ(listen_at(ipv4.get(), INADDR_ANY, port), 0);
  errno = EBADMSG;
  EXPECT_EQ(listen_at_ipv6_alone(ipv6.get(), port), 0);
  EXPECT_EQ(errno, EBADMSG) << "as after any call that the kernel does at once";
  const UniqueFd again = socket_of(AF_INET6, SOCK_STREAM);
  EXPECT_EQ(listen_at_ipv6_alone(again.get(), port), EADDRINUSE);
  // Nothing of the one host comes to the other.
  const UniqueFd to_localhost = socket_of(AF_INET6, SOCK_STREAM);
  EXPECT_EQ(connect_by(to_localhost, ipv6_localhost(port)), 0);
  EXPECT_EQ(fcntl(ipv6.get(), F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(accept(ipv6.get(), nullptr, nullptr), -1);
}

TEST(WireSockets, APortOfIpv6AloneKeepsNoneOfIpv4) {
  const uint16_t port = free_port();
  const OtherProgram other("a", port, OtherProgram::kAlone);
  const UniqueFd ipv6 = socket_of(AF_INET6, SOCK_STREAM);
  EXPECT_EQ(listen_at_ipv6_alone(ipv6.get(), port), 0);
  const UniqueFd ipv4 = socket_of(AF_INET, SOCK_STREAM);
  EXPECT_EQ(listen_at(ipv4.get(), INADDR_ANY, port), 0);
}

TEST(WireSockets, APortOfIpv6AloneOfTheSameHostIsTaken) {
  const uint16_t port = free_port();
  const UniqueFd second = socket_of(AF_INET6, SOCK_STREAM);
  {
    const OtherProgram same("b", port, OtherProgram::kIpv6Alone);
    EXPECT_EQ(listen_at_ipv6_alone(second.get(), port), EADDRINUSE);
  }
  const OtherProgram other("a", port, OtherProgram::kIpv6Alone);
  const OtherProgram same("b", port, OtherProgram::kIpv6Alone);
  EXPECT_EQ(listen_at_ipv6_alone(second.get(), port), EADDRINUSE) << "at its stand-in, of another process";
}

TEST(WireSockets, APortOfTheSameHostIsTaken) {
  const uint16_t port = free_port();
  const UniqueFd second = socket_of(AF_INET, SOCK_STREAM);
  {
    const OtherProgram same("b", port, OtherProgram::kAlone);
    EXPECT_EQ(listen_at(second.get(), INADDR_ANY, port), EADDRINUSE);
    EXPECT_EQ(listen_at(second.get(), kSideB, port), EADDRINUSE);
  }
  // Of this program itself, also before it listens; then at its own address.
  {
    const UniqueFd first = bound_to(INADDR_ANY, SOCK_STREAM, port);
    EXPECT_EQ(listen_at(second.get(), INADDR_ANY, port), EADDRINUSE);
    ASSERT_EQ(listen(first.get(), 4), 0);
    EXPECT_EQ(listen_at(second.get(), INADDR_ANY, port), EADDRINUSE);
  }
  const OtherProgram other("a", port, OtherProgram::kAlone);
  const UniqueFd first = socket_of(AF_INET, SOCK_STREAM);
  ASSERT_EQ(listen_at(first.get(), INADDR_ANY, port), 0);
  EXPECT_EQ(listen_at(second.get(), INADDR_ANY, port), EADDRINUSE);
}

TEST(WireSockets, APortIsSharedWithinOneHostAlone) {
  const uint16_t port = free_port();
  std::array<UniqueFd, 2> servers;
  {
    const OtherProgram other("a", port, OtherProgram::kShared);
    for (UniqueFd& server : servers) {
      server = socket_of(AF_INET, SOCK_STREAM);
      share(server.get());
      ASSERT_EQ(listen_at(server.get(), INADDR_ANY, port), 0);
      EXPECT_EQ(name(server.get(), getsockname), "198.18.0.2");
    }
    servers = {};
  }
  const OtherProgram same("b", port, OtherProgram::kShared);
  servers[0] = socket_of(AF_INET, SOCK_STREAM);
  share(servers[0].get());
  ASSERT_EQ(listen_at(servers[0].get(), INADDR_ANY, port), 0);
  EXPECT_EQ(name(servers[0].get(), getsockname), "0.0.0.0");
}

/// Whether a server that does not wait has a connection; takes it.
bool takes_one(const UniqueFd& server) {
  EXPECT_EQ(fcntl(server.get(), F_SETFL, O_NONBLOCK), 0);
  return bool(UniqueFd(accept(server.get(), nullptr, nullptr)));
}

TEST(WireSockets, AProgramReachesItsOwnPortAtLocalhost) {
  const uint16_t port = free_port();
  const OtherProgram other("a", port, OtherProgram::kAlone);
  EXPECT_EQ(connect_by(socket_of(AF_INET, SOCK_STREAM), ipv4_address(kLocalhost, port)), 0) << "the other's";
  const UniqueFd server = socket_of(AF_INET, SOCK_STREAM);
  ASSERT_EQ(listen_at(server.get(), INADDR_ANY, port), 0);
  EXPECT_FALSE(takes_one(server));
  const UniqueFd client = socket_of(AF_INET, SOCK_STREAM);
  errno = EBADMSG;
  EXPECT_EQ(connect_by(client, ipv4_address(kLocalhost, port)), 0);
  EXPECT_EQ(errno, EBADMSG) << "as after any call that the kernel does at once";
  EXPECT_EQ(name(client.get(), getsockname), "127.0.0.1");
  EXPECT_TRUE(takes_one(server));
  EXPECT_EQ(connect_by(socket_of(AF_INET6, SOCK_STREAM), mapped_address(kLocalhost, port)), 0);
  EXPECT_TRUE(takes_one(server));
  EXPECT_EQ(connect_by(socket_of(AF_INET6, SOCK_STREAM), ipv6_localhost(port)), ECONNREFUSED)
      << "neither host has it with IPv6";
  // A port of UDP, or another one, is not this one.
  EXPECT_EQ(connect_by(socket_of(AF_INET, SOCK_DGRAM), ipv4_address(kLocalhost, port)), 0);
  EXPECT_EQ(connect_by(socket_of(AF_INET, SOCK_STREAM), ipv4_address(kLocalhost, free_port())), ECONNREFUSED);
  EXPECT_FALSE(takes_one(server));
}

TEST(WireSockets, AProgramReachesItsOwnPortOfBothFamiliesAtLocalhost) {
  const uint16_t port = free_port();
  const OtherProgram other("a", port, OtherProgram::kAlone);
  const UniqueFd server = socket_of(AF_INET6, SOCK_STREAM);
  sockaddr_in6 any = ipv6_localhost(port);
  any.sin6_addr = in6addr_any;
  ASSERT_EQ(bind(server.get(), raw(any), sizeof any), 0);
  ASSERT_EQ(listen(server.get(), 4), 0);
  EXPECT_EQ(connect_by(socket_of(AF_INET, SOCK_STREAM), ipv4_address(kLocalhost, port)), 0);
  EXPECT_TRUE(takes_one(server));
  EXPECT_EQ(connect_by(socket_of(AF_INET6, SOCK_STREAM), ipv6_localhost(port)), 0);
  EXPECT_TRUE(takes_one(server));
  const UniqueFd ipv6_alone = socket_of(AF_INET6, SOCK_STREAM);
  const int on = 1;
  ASSERT_EQ(setsockopt(ipv6_alone.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on), 0);
  EXPECT_EQ(connect_by(ipv6_alone, ipv6_localhost(port)), ECONNREFUSED) << "its call is the kernel's";
}

TEST(WireSockets, AListenerAtLocalhostComesBeforeOneAtTheOwnAddress) {
  const uint16_t port = free_port();
  const UniqueFd own = listener_at(kSideB, port);
  const UniqueFd localhost = listener_at(kLocalhost, port);
  EXPECT_EQ(connect_by(socket_of(AF_INET, SOCK_STREAM), ipv4_address(kLocalhost, port)), 0);
  EXPECT_TRUE(takes_one(localhost));
  EXPECT_FALSE(takes_one(own));
}

}  // namespace

int hold_port_if_asked(int argc, char** argv) {
  if (argc != 4 || std::string_view(argv[1]) != OtherProgram::kHoldPort) return -1;
  return hold_port(static_cast<uint16_t>(std::stoi(argv[2])), argv[3]);
}

}  // namespace faultline::abi
