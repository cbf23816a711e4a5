// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/run/own_network.hpp"

#include <cerrno>
#include <csignal>
#include <string_view>

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <spdlog/fmt/fmt.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace faultline::cli {
namespace {

int write_text(const char* path, std::string_view text) {
  const UniqueFd file(open(path, O_WRONLY | O_CLOEXEC));
  if (file.get() < 0) return errno;
  return write(file.get(), text.data(), text.size()) < 0 ? errno : 0;
}

int raise_loopback() {
  const UniqueFd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (any.get() < 0) return errno;
  ifreq request{};
  request.ifr_name[0] = 'l';
  request.ifr_name[1] = 'o';
  request.ifr_flags = IFF_UP;
  return ioctl(any.get(), SIOCSIFFLAGS, &request) < 0 ? errno : 0;
}

/// In a child of its own: unshare(2) of a user namespace needs a process of one thread. Returns 0 or an
/// errno.
int enter_new(bool with_user, std::string_view users, std::string_view groups) {
  if (unshare(CLONE_NEWNET | (with_user ? CLONE_NEWUSER : 0)) != 0) return errno;
  if (with_user) {
    if (const int error = write_text("/proc/self/uid_map", users); error != 0) return error;
    // Required before gid_map by user_namespaces(7).
    if (const int error = write_text("/proc/self/setgroups", "deny"); error != 0) return error;
    if (const int error = write_text("/proc/self/gid_map", groups); error != 0) return error;
  }
  return raise_loopback();
}

int open_namespace(pid_t process, const char* kind, UniqueFd& fd) {
  fd = UniqueFd(open(fmt::format("/proc/{}/ns/{}", process, kind).c_str(), O_RDONLY | O_CLOEXEC));
  return fd.get() < 0 ? errno : 0;
}

int open_namespaces(pid_t process, bool with_user, OwnNetwork& network) {
  if (const int error = open_namespace(process, "net", network.network); error != 0) return error;
  return with_user ? open_namespace(process, "user", network.user) : 0;
}

}  // namespace

int make_own_network(OwnNetwork& network) {
  const bool with_user = geteuid() != 0;
  const std::string users = fmt::format("{0} {0} 1", geteuid());
  const std::string groups = fmt::format("{0} {0} 1", getegid());
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  UniqueFd told(ends[0]);
  UniqueFd teller(ends[1]);
  const pid_t child = fork();
  if (child < 0) return errno;
  if (child == 0) {
    const int result = enter_new(with_user, users, groups);
    if (write(teller.get(), &result, sizeof result) != sizeof result) _exit(1);
    // Until its parent has the descriptors.
    while (true) pause();
  }
  teller.reset();
  int error = ECHILD;
  if (read(told.get(), &error, sizeof error) != sizeof error) error = ECHILD;
  if (error == 0) error = open_namespaces(child, with_user, network);
  kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
  if (error != 0) network = {};
  return error;
}

}  // namespace faultline::cli
