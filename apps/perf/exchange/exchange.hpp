// SPDX-License-Identifier: BSD-3-Clause
// Out-of-band exchange of JSON lines over one TCP connection, as perftest uses a TCP socket for its
// parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

namespace faultline::perf {

/// The peer closed the connection, sent an invalid message, or sent none in time. One line for the user; exit
/// status 1.
class ExchangeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Exchange {
 public:
  explicit Exchange(int socket) : socket_(socket) {}
  Exchange(Exchange&& other) noexcept : socket_(other.socket_), buffer_(std::move(other.buffer_)) {
    other.socket_ = -1;
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange();

  /// Connects to a server and retries until `timeout_ms` have passed.
  static Exchange connect_to(const std::string& host, uint16_t port, int timeout_ms);

  void send(const nlohmann::json& message);
  /// Returns the next message; throws after `timeout_ms`.
  nlohmann::json receive(int timeout_ms = 30'000);
  /// Returns the next message if a whole one has arrived.
  std::optional<nlohmann::json> try_receive();
  /// Sends `message` and returns the answer; throws if the answer has "error".
  nlohmann::json ask(const nlohmann::json& message, int timeout_ms = 30'000);

 private:
  std::optional<nlohmann::json> take_line();

  int socket_;
  std::string buffer_;
};

class Listener {
 public:
  Listener(const std::string& address, uint16_t port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  [[nodiscard]] uint16_t port() const { return port_; }
  [[nodiscard]] Exchange accept_client();

 private:
  int socket_ = -1;
  uint16_t port_ = 0;
};

}  // namespace faultline::perf
