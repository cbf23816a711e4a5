// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/switch_place.hpp"

#include <cerrno>

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "pmd_glue/runtime_directory.hpp"
#include "pmd_glue/wire_request.hpp"

namespace faultline::glue {
namespace {

constexpr int kBacklog = 64;

sockaddr_un address_of(const SwitchPlace& place) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  place.control_socket.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

}  // namespace

std::optional<SwitchPlace> place_of_wire(const std::string& wire, std::string& error) {
  if (!is_wire_name(wire)) {
    error = fmt::format("faultline: a wire's name is 1 to {} letters, digits, _ or -: not \"{}\"",
                        kMaxWireNameBytes, wire);
    return std::nullopt;
  }
  const std::string directory = runtime_directory(error);
  if (directory.empty()) return std::nullopt;
  const std::string base = directory + "/" + wire;
  SwitchPlace place{base + ".control", base + ".lock", base + ".log", base + ".seat"};
  constexpr size_t kSeatNumberBytes = 3;
  if (place.memif_prefix.size() + kSeatNumberBytes >= sizeof(sockaddr_un::sun_path)) {
    error = fmt::format("faultline: {} is too long a path for sockets; set XDG_RUNTIME_DIR to a shorter one",
                        directory);
    return std::nullopt;
  }
  return place;
}

UniqueFd lock_wire(const SwitchPlace& place, bool wait) {
  UniqueFd lock(open(place.lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return lock;
  while (flock(lock.get(), LOCK_EX | (wait ? 0 : LOCK_NB)) != 0)
    if (errno != EINTR) return {};
  return lock;
}

UniqueFd listen_on_wire(const SwitchPlace& place, bool& died) {
  UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) return listener;
  died = unlink(place.control_socket.c_str()) == 0;
  const sockaddr_un address = address_of(place);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener.get(), kBacklog) != 0)
    return {};
  return listener;
}

UniqueFd connect_to_wire(const SwitchPlace& place) {
  UniqueFd connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!connection) return connection;
  const sockaddr_un address = address_of(place);
  while (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    if (errno != EINTR) return {};
  return connection;
}

}  // namespace faultline::glue
