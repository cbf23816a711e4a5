// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/ports/socket_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <spdlog/fmt/fmt.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace faultline::glue {

PortResult check_socket_folder(const std::string& path) {
  const std::string directory = path.substr(0, std::max<size_t>(path.rfind('/'), 1));
  if (access(directory.c_str(), R_OK | W_OK) == 0) return {};
  return PortFault{fmt::format("the directory {} must exist and be readable and writable: {}", directory,
                               std::strerror(errno))};
}

int try_to_connect(const std::string& path, int type) {
  // Non-blocking: a stopped server accepts nothing, and a connect() waits once its queue is full (EAGAIN).
  const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int error = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  close(fd);
  return error;
}

PortResult free_socket_path(const std::string& path, int type) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return {};
  if (!S_ISSOCK(status.st_mode)) return PortFault{fmt::format("{} exists and is not a socket", path)};
  if (try_to_connect(path, type) != ECONNREFUSED)
    return PortFault{
        fmt::format("{} is served by another process; give each server a path of its own", path)};
  unlink(path.c_str());
  return {};
}

}  // namespace faultline::glue
