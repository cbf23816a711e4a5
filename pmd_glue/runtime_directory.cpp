// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/runtime_directory.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <spdlog/fmt/fmt.h>
#include <sys/stat.h>
#include <unistd.h>

namespace faultline::glue {
namespace {

bool is_own_directory(const char* path) {
  struct stat status {};
  // lstat: in /tmp anybody could have left a link.
  return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

}  // namespace

std::string runtime_directory(std::string& error) {
  const char* const xdg = std::getenv("XDG_RUNTIME_DIR");
  // Of a program that changed its user it may be another's.
  const bool use_xdg = xdg != nullptr && xdg[0] == '/' && is_own_directory(xdg);
  std::string path = use_xdg ? fmt::format("{}/faultline", xdg) : fmt::format("/tmp/faultline-{}", geteuid());
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    error = fmt::format("faultline: cannot make the directory {}: {}", path, std::strerror(errno));
    return {};
  }
  struct stat status {};
  if (!is_own_directory(path.c_str()) || stat(path.c_str(), &status) != 0 || (status.st_mode & 077) != 0) {
    error = fmt::format("faultline: {} must be a directory of this user's alone (mode 700)", path);
    return {};
  }
  return path;
}

}  // namespace faultline::glue
