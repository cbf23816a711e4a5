// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>

namespace faultline::glue {

/// While it exists, each Unix socket that this thread creates has a time limit for every call that waits:
/// connect(), accept(), send() and recv(). Connections that such a socket accepts have it too.
class SocketTimeLimit {
 public:
  explicit SocketTimeLimit(std::chrono::seconds limit);
  ~SocketTimeLimit();
  SocketTimeLimit(const SocketTimeLimit&) = delete;
  SocketTimeLimit& operator=(const SocketTimeLimit&) = delete;
};

}  // namespace faultline::glue
