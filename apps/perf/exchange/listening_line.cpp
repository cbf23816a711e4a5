// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/exchange/listening_line.hpp"

#include <charconv>

namespace faultline::perf {

namespace {

constexpr std::string_view kListening = "listening on TCP port ";

}  // namespace

std::string listening_line(uint16_t port) {
  return std::string(kListening) + std::to_string(port);
}

std::optional<uint16_t> port_of_listening_line(std::string_view line) {
  if (!line.starts_with(kListening)) return std::nullopt;
  line.remove_prefix(kListening.size());
  uint16_t port = 0;
  const char* const end = line.data() + line.size();
  const auto [parsed_to, error] = std::from_chars(line.data(), end, port);
  if (error != std::errc() || parsed_to != end || port == 0) return std::nullopt;
  return port;
}

}  // namespace faultline::perf
