// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/export/metrics_server.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include <netdb.h>
#include <poll.h>
#include <spdlog/fmt/fmt.h>
#include <sys/socket.h>

#include "stack/base/unique_fd.hpp"

namespace faultline::cli {

namespace {

constexpr size_t kMostHeadBytes = 8192;
// For one request, and for its answer: no client keeps the next one waiting longer.
constexpr std::chrono::seconds kPatience{2};

/// Waits until the connection is ready for `events` of poll(2); false if the time is over.
bool wait_for(int connection, short events, std::chrono::steady_clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  pollfd one{.fd = connection, .events = events, .revents = 0};
  return left.count() > 0 && poll(&one, 1, static_cast<int>(left.count())) == 1;
}

std::string response(std::string_view status, std::string_view type, std::string_view body, bool with_body) {
  std::string text =
      fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n",
                  status, type, body.size(), status.starts_with("405") ? "Allow: GET, HEAD\r\n" : "");
  if (with_body) text += body;
  return text;
}

/// Returns the head of a request; "" if none comes, or too long a one.
std::string receive_head(int connection) {
  std::string head;
  std::array<char, 1024> part;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (head.find("\r\n\r\n") == std::string::npos) {
    if (!wait_for(connection, POLLIN, end)) return {};
    const ssize_t bytes = recv(connection, part.data(), part.size(), 0);
    if (bytes <= 0 || head.size() + static_cast<size_t>(bytes) > kMostHeadBytes) return {};
    head.append(part.data(), static_cast<size_t>(bytes));
  }
  return head;
}

void send_all(int connection, std::string_view text) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!text.empty() && wait_for(connection, POLLOUT, end)) {
    const ssize_t bytes = send(connection, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes <= 0) return;
    text.remove_prefix(static_cast<size_t>(bytes));
  }
}

/// Returns a listening socket, or none and one line in `error`.
UniqueFd listen_at(const std::string& place, std::string& error) {
  const size_t colon = place.rfind(':');
  std::string address = colon == std::string::npos ? "127.0.0.1" : place.substr(0, colon);
  const std::string port = colon == std::string::npos ? place : place.substr(colon + 1);
  if (address.size() > 2 && address.front() == '[' && address.back() == ']')
    address = address.substr(1, address.size() - 2);
  const addrinfo hints{.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                       .ai_family = AF_UNSPEC,
                       .ai_socktype = SOCK_STREAM,
                       .ai_protocol = 0,
                       .ai_addrlen = 0,
                       .ai_addr = nullptr,
                       .ai_canonname = nullptr,
                       .ai_next = nullptr};
  addrinfo* found = nullptr;
  if (const int status = getaddrinfo(address.c_str(), port.c_str(), &hints, &found); status != 0) {
    error = fmt::format("cannot listen at {}: {}; give --prometheus a PORT, or an IP address and a port",
                        place, gai_strerror(status));
    return {};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  UniqueFd listener(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  constexpr int kQueue = 16;
  if (listener) {
    setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener.get(), found->ai_addr, found->ai_addrlen) == 0 && listen(listener.get(), kQueue) == 0)
      return listener;
  }
  error = fmt::format("cannot listen at {}: {}; give --prometheus another port", place, std::strerror(errno));
  return {};
}

}  // namespace

std::string answer_request(std::string_view head, MetricsSource source) {
  constexpr std::string_view kText = "text/plain; charset=utf-8";
  constexpr std::string_view kMetrics = "text/plain; version=0.0.4; charset=utf-8";
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const size_t first = line.find(' ');
  const size_t second = line.rfind(' ');
  if (first == std::string_view::npos || second == first || !line.substr(second + 1).starts_with("HTTP/1."))
    return response("400 Bad Request", kText, "not HTTP/1\n", true);
  const std::string_view method = line.substr(0, first);
  const bool is_head = method == "HEAD";
  if (method != "GET" && !is_head)
    return response("405 Method Not Allowed", kText, "only GET and HEAD\n", true);
  const std::string_view target = line.substr(first + 1, second - first - 1);
  if (target.substr(0, target.find('?')) != "/metrics")
    return response("404 Not Found", kText, "the metrics are at /metrics\n", !is_head);
  return response("200 OK", kMetrics, source(), !is_head);
}

void serve_metrics(const std::string& place, MetricsSource source, std::string& error) {
  const UniqueFd listener = listen_at(place, error);
  if (!listener) return;
  for (;;) {
    const UniqueFd connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) {
      // accept(2): a connection that was aborted, or an error of the network, ends no server.
      if (errno == EMFILE || errno == ENFILE || errno == EBADF || errno == ENOMEM) break;
      continue;
    }
    if (const std::string head = receive_head(connection.get()); !head.empty())
      send_all(connection.get(), answer_request(head, source));
  }
  error = fmt::format("cannot serve at {}: {}; start again with more descriptors or memory", place,
                      std::strerror(errno));
}

}  // namespace faultline::cli
