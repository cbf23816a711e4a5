// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/wires/switch_place.hpp"

#include <cerrno>
#include <fstream>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "pmd_glue/wires/wire_request.hpp"
#include "stack/base/runtime_directory.hpp"

namespace faultline::glue {
namespace {

constexpr int kBacklog = 64;

/// Sleeps for kLookPause and returns true; returns false with ETIMEDOUT if the deadline has passed.
bool pause_until(SteadyTime deadline) {
  if (std::chrono::steady_clock::now() >= deadline) {
    errno = ETIMEDOUT;
    return false;
  }
  std::this_thread::sleep_for(kLookPause);
  return true;
}

bool is_file_at(int fd, const std::string& path) {
  struct stat opened {
  }, named{};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

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
  SwitchPlace place{base + ".control", base + ".lock", base + ".log", base + ".uplink"};
  if (place.control_socket.size() >= sizeof(sockaddr_un::sun_path)) {
    error = fmt::format("faultline: {} is too long a path for sockets; set XDG_RUNTIME_DIR to a shorter one",
                        directory);
    return std::nullopt;
  }
  return place;
}

UniqueFd lock_wire(const SwitchPlace& place, SteadyTime deadline) {
  for (;;) {
    UniqueFd lock(open(place.lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock) return lock;
    if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) {
      // A switch that ends removes the file, and a lock on a removed file excludes no process.
      if (is_file_at(lock.get(), place.lock_file)) return lock;
      continue;
    }
    const bool is_taken = errno == EWOULDBLOCK || errno == EINTR;
    if (!is_taken || !pause_until(deadline)) return {};
  }
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

UniqueFd connect_to_wire(const SwitchPlace& place, SteadyTime deadline) {
  UniqueFd connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connection) return connection;
  const sockaddr_un address = address_of(place);
  // EAGAIN: the backlog is full (unix(7)).
  while (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    if (errno != EINTR && (errno != EAGAIN || !pause_until(deadline))) return {};
  return connection;
}

bool note_uplink(const SwitchPlace& place, bool has_uplink) {
  if (!has_uplink) return unlink(place.uplink_file.c_str()) == 0 || errno == ENOENT;
  return UniqueFd(open(place.uplink_file.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)).get() >=
         0;
}

bool needs_uplink(const SwitchPlace& place) {
  return access(place.uplink_file.c_str(), F_OK) == 0;
}

void remove_files(const SwitchPlace& place) {
  for (const std::string& file : {place.control_socket, place.log_file, place.uplink_file, place.lock_file})
    unlink(file.c_str());
}

UniqueFd lock_as_switch(const SwitchPlace& place) {
  UniqueFd file(open(place.lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  struct flock whole {};
  whole.l_type = F_WRLCK;
  if (file && fcntl(file.get(), F_SETLK, &whole) != 0) file.reset();
  return file;
}

int switch_process(const SwitchPlace& place) {
  const UniqueFd file(open(place.lock_file.c_str(), O_RDWR | O_CLOEXEC));
  struct flock whole {};
  whole.l_type = F_WRLCK;
  if (!file || fcntl(file.get(), F_GETLK, &whole) != 0 || whole.l_type == F_UNLCK) return 0;
  return whole.l_pid;
}

// proc_locks(5): "1: FLOCK  ADVISORY  WRITE 708 08:01:393225 0 EOF".
int lock_process(const SwitchPlace& place) {
  struct stat status {};
  if (stat(place.lock_file.c_str(), &status) != 0) return 0;
  const std::string inode = fmt::format(":{}", status.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, mode, file;
    int pid = 0;
    if (words >> number >> kind >> advisory >> mode >> pid >> file && kind == "FLOCK" &&
        file.ends_with(inode))
      return pid;
  }
  return 0;
}

bool is_stopped(int pid) {
  // proc_pid_stat(5): the state follows the name in parentheses, which may contain parentheses itself.
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return false;
  const char state = text[name_end + 2];
  return state == 'T' || state == 't';
}

std::string advice_on(int pid) {
  if (pid <= 0) return "it may be stopped; list processes with ps x";
  if (is_stopped(pid))
    return fmt::format(
        "process {0} is stopped: continue it with kill -CONT {0}, or end it with kill -KILL {0}", pid);
  return fmt::format("process {0} is busy or hangs: wait for it, or end it with kill -KILL {0}", pid);
}

}  // namespace faultline::glue
