// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/ask_status.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include "pmd_glue/wires/switch_channel.hpp"
#include "pmd_glue/wires/switch_place.hpp"
#include "pmd_glue/wires/switch_protocol.hpp"

namespace faultline::switching {
namespace {

constexpr auto kStatusPatience = std::chrono::seconds(5);

std::string contents_of(const UniqueFd& file) {
  std::string text;
  std::array<char, 4096> part;
  for (;;) {
    // The descriptor's position is the switch's, at the end.
    const ssize_t length = pread(file.get(), part.data(), part.size(), static_cast<off_t>(text.size()));
    if (length <= 0) return text;
    text.append(part.data(), static_cast<size_t>(length));
  }
}

}  // namespace

std::string ask_status(const std::string& wire, bool as_json, std::string& error) {
  const auto place = glue::place_of_wire(wire, error);
  if (!place) return {};
  const auto refuse = [&](const std::string& why) {
    error = fmt::format("faultline-switch: wire {}: {}", wire, why);
    return std::string();
  };
  const auto deadline = std::chrono::steady_clock::now() + kStatusPatience;
  UniqueFd connection = glue::connect_to_wire(*place, deadline);
  if (!connection && (errno == ENOENT || errno == ECONNREFUSED))
    return refuse("it has no switch; the first program on it starts one");
  if (!connection)
    return refuse(fmt::format("cannot connect to {}: {}", place->control_socket, std::strerror(errno)));
  glue::SwitchChannel channel(std::move(connection));
  glue::SwitchRequest request;
  request.verb = glue::SwitchVerb::status;
  request.json = as_json ? 1 : 0;
  const uint64_t number = channel.send(request, deadline);
  glue::SwitchAnswer answer;
  std::vector<UniqueFd> descriptors;
  using Received = glue::SwitchChannel::Received;
  const Received received =
      number != 0 ? channel.receive(number, deadline, answer, descriptors) : Received::ended;
  if (received == Received::nothing)
    return refuse("its switch does not answer; " + glue::advice_on(glue::switch_process(*place)));
  if (received != Received::answer) return refuse("its switch has ended");
  if (answer.error != 0)
    return refuse(std::string(answer.line.data(), strnlen(answer.line.data(), answer.line.size())));
  std::string text = descriptors.size() == 1 ? contents_of(descriptors[0]) : "";
  return text.empty() ? refuse("its switch sends no status; is it of another build?") : text;
}

}  // namespace faultline::switching
