// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/export/metrics_server.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include <netdb.h>
#include <spdlog/fmt/fmt.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace faultline::cli {

namespace {

constexpr size_t kMostHeadBytes = 8192;
// For one receive or send: a client that does nothing keeps the next one waiting no longer.
constexpr timeval kPatience{.tv_sec = 2, .tv_usec = 0};

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
  while (head.find("\r\n\r\n") == std::string::npos) {
    const ssize_t bytes = recv(connection, part.data(), part.size(), 0);
    if (bytes <= 0 || head.size() + static_cast<size_t>(bytes) > kMostHeadBytes) return {};
    head.append(part.data(), static_cast<size_t>(bytes));
  }
  return head;
}

void send_all(int connection, std::string_view text) {
  while (!text.empty()) {
    const ssize_t bytes = send(connection, text.data(), text.size(), MSG_NOSIGNAL);
    if (bytes <= 0) return;
    text.remove_prefix(static_cast<size_t>(bytes));
  }
}

/// Returns a listening socket, or -1 and one line in `error`.
int listen_at(const std::string& place, std::string& error) {
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
    return -1;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const int listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  constexpr int kQueue = 16;
  if (listener >= 0) {
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, found->ai_addr, found->ai_addrlen) == 0 && listen(listener, kQueue) == 0)
      return listener;
  }
  error = fmt::format("cannot listen at {}: {}; give --prometheus another port", place, std::strerror(errno));
  if (listener >= 0) close(listener);
  return -1;
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
  const int listener = listen_at(place, error);
  if (listener < 0) return;
  for (;;) {
    const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) {
      // accept(2): a connection that was aborted, or an error of the network, ends no server.
      if (errno == EMFILE || errno == ENFILE || errno == EBADF || errno == ENOMEM) break;
      continue;
    }
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
    if (const std::string head = receive_head(connection); !head.empty())
      send_all(connection, answer_request(head, source));
    close(connection);
  }
  error = fmt::format("cannot serve at {}: {}; start again with more descriptors or memory", place,
                      std::strerror(errno));
  close(listener);
}

}  // namespace faultline::cli
