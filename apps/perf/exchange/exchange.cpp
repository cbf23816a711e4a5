// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/exchange/exchange.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace faultline::perf {

namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 24;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses look_up(const std::string& host, uint16_t port, bool passive) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) throw ExchangeError(host + ": " + gai_strerror(error));
  return Addresses(list);
}

}  // namespace

Exchange::~Exchange() {
  if (socket_ >= 0) close(socket_);
}

Exchange Exchange::connect_to(const std::string& host, uint16_t port, int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  const Addresses addresses = look_up(host, port, false);
  int error = 0;
  do {
    for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
      const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd < 0) continue;
      if (connect(fd, address->ai_addr, address->ai_addrlen) == 0) {
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        return Exchange(fd);
      }
      error = errno;
      close(fd);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (std::chrono::steady_clock::now() < deadline);
  throw ExchangeError("cannot connect to " + host + " port " + std::to_string(port) + ": " +
                      std::strerror(error));
}

void Exchange::send(const nlohmann::json& message) {
  const std::string line = message.dump() + "\n";
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw ExchangeError("the peer has gone");
    sent += static_cast<size_t>(n);
  }
}

std::optional<nlohmann::json> Exchange::take_line() {
  const size_t end = buffer_.find('\n');
  if (end == std::string::npos) {
    if (buffer_.size() > kMaxLineBytes) throw ExchangeError("the peer does not speak this exchange");
    return std::nullopt;
  }
  nlohmann::json message =
      nlohmann::json::parse(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(end), nullptr, false);
  buffer_.erase(0, end + 1);
  if (message.is_discarded() || !message.is_object())
    throw ExchangeError("the peer does not speak this exchange");
  return std::make_optional(std::move(message));  // JSON itself converts to an optional in two ways
}

std::optional<nlohmann::json> Exchange::try_receive() {
  if (auto message = take_line()) return message;
  char bytes[4096];
  const ssize_t n = recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) throw ExchangeError("the peer has gone");
  if (n > 0) buffer_.append(bytes, static_cast<size_t>(n));
  return take_line();
}

nlohmann::json Exchange::receive(int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    if (auto message = try_receive()) return *message;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
            .count();
    if (left <= 0) throw ExchangeError("the peer did not answer in time");
    pollfd waiting{socket_, POLLIN, 0};
    poll(&waiting, 1, static_cast<int>(left));
  }
}

nlohmann::json Exchange::ask(const nlohmann::json& message, int timeout_ms) {
  send(message);
  nlohmann::json answer = receive(timeout_ms);
  if (answer.contains("error")) throw ExchangeError("server: " + answer["error"].get<std::string>());
  return answer;
}

Listener::Listener(const std::string& address, uint16_t port) {
  const Addresses addresses = look_up(address, port, true);
  int error = 0;
  // IPv6 is tried first: an IPv6 socket with IPV6_V6ONLY off accepts both families.
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* at = addresses.get(); at != nullptr && socket_ < 0; at = at->ai_next) {
      if (at->ai_family != family) continue;
      const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd < 0) continue;
      const int on = 1;
      const int off = 0;
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, 4) == 0) {
        socket_ = fd;
      } else {
        error = errno;
        close(fd);
      }
    }
  }
  if (socket_ < 0)
    throw ExchangeError("cannot listen on port " + std::to_string(port) + ": " + std::strerror(error));
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &length);
  port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                            : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

Listener::~Listener() {
  close(socket_);
}

Exchange Listener::accept_client() {
  for (;;) {
    const int fd = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) {
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return Exchange(fd);
    }
    if (errno != EINTR) throw ExchangeError(std::string("accept: ") + std::strerror(errno));
  }
}

}  // namespace faultline::perf
