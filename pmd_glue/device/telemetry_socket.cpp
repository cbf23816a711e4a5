// SPDX-License-Identifier: BSD-3-Clause
// At its start EAL connects to each telemetry socket of the user's programs, to find whether a server listens
// (DPDK 22.11, telemetry.c). A stopped server (a debugger, Ctrl-Z) accepts no connection, and the connect
// blocks once the server's queue is full. After two more starts no program would start. So the connect is
// non-blocking here, and a full queue counts as a connection.
#include <cerrno>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "pmd_glue/memif/memif_client.hpp"

extern "C" {
int __real_connect(int fd, const sockaddr* address, socklen_t length_bytes);
int __wrap_connect(int fd, const sockaddr* address, socklen_t length_bytes);

int __wrap_connect(int fd, const sockaddr* address, socklen_t length_bytes) {
  faultline::glue::memif::on_connection(fd);
  sockaddr_un local{};
  if (address->sa_family != AF_UNIX || length_bytes > sizeof local)
    return __real_connect(fd, address, length_bytes);
  std::memcpy(&local, address, length_bytes);
  local.sun_path[sizeof local.sun_path - 1] = '\0';
  if (std::string_view(local.sun_path).find("/dpdk_telemetry.") == std::string_view::npos)
    return __real_connect(fd, address, length_bytes);
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  const int connected = __real_connect(fd, address, length_bytes);
  const int error = errno;
  fcntl(fd, F_SETFL, flags);
  errno = error;
  return connected != 0 && error == EAGAIN ? 0 : connected;
}
}
