// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/run/listening_port.hpp"

#include <fstream>
#include <sstream>
#include <string>

#include <spdlog/fmt/fmt.h>

namespace faultline::cli {

bool listens(pid_t process, unsigned port) {
  // proc(5), /proc/net/tcp: number, local address:port in hexadecimal, the other end's, state; 0A is LISTEN.
  const std::string end = fmt::format(":{:04X}", port);
  for (const char* const table : {"tcp", "tcp6"}) {
    std::ifstream file(fmt::format("/proc/{}/net/{}", process, table));
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string number;
      std::string local;
      std::string remote;
      std::string state;
      if (words >> number >> local >> remote >> state && local.ends_with(end) && state == "0A") return true;
    }
  }
  return false;
}

}  // namespace faultline::cli
