// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/runtime_directory.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <spdlog/fmt/fmt.h>
#include <sys/stat.h>
#include <unistd.h>

namespace faultline {
namespace {

bool is_own_directory(const char* path) {
  struct stat status {};
  // lstat, because any user may have left a link in /tmp.
  return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

}  // namespace

std::string usable_directory(const std::vector<std::string>& candidates, std::string& error) {
  error.clear();
  for (const std::string& path : candidates) {
    const bool made = mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
    const int reason = errno;
    struct stat status {};
    if (made && is_own_directory(path.c_str()) && stat(path.c_str(), &status) == 0 &&
        (status.st_mode & 077) == 0)
      return path;
    if (!error.empty()) continue;
    error = made ? fmt::format(
                       "faultline: {} must be a directory of this user's alone (mode 700); if it is another "
                       "user's, set XDG_RUNTIME_DIR to a directory of this user's",
                       path)
                 : fmt::format(
                       "faultline: cannot make the directory {}: {}; set XDG_RUNTIME_DIR to a directory of "
                       "this user's that it may write",
                       path, std::strerror(reason));
  }
  return {};
}

std::string runtime_directory(std::string& error) {
  const char* const xdg = secure_getenv("XDG_RUNTIME_DIR");
  // The variable may name another user's directory if the program changed its user.
  if (xdg != nullptr && xdg[0] == '/' && is_own_directory(xdg))
    return usable_directory({fmt::format("{}/faultline", xdg)}, error);
  std::vector<std::string> candidates{fmt::format("/tmp/faultline-{}", geteuid())};
  // The fallback if another user owns the path in /tmp. The login manager makes this directory, and no other
  // user can make it (pam_systemd(8)).
  const std::string session = fmt::format("/run/user/{}", geteuid());
  if (is_own_directory(session.c_str())) candidates.push_back(session + "/faultline");
  // In a container with a read-only root this may be the only folder that can be written.
  candidates.push_back(fmt::format("/dev/shm/faultline-{}", geteuid()));
  return usable_directory(candidates, error);
}

std::vector<std::string> eal_directories() {
  std::vector<std::string> found;
  if (const char* const given = secure_getenv("RUNTIME_DIRECTORY")) found.emplace_back(given);
  if (getuid() == 0)
    found.emplace_back("/var/run");
  else if (const char* const given = secure_getenv("XDG_RUNTIME_DIR"))
    found.emplace_back(given);
  std::string error;
  if (std::string own = runtime_directory(error); !own.empty()) found.push_back(std::move(own));
  // The second part is EAL's --file-prefix.
  for (std::string& base : found) base += "/dpdk/faultline";
  return found;
}

}  // namespace faultline
