// SPDX-License-Identifier: BSD-3-Clause
// Creates kernel sockets for DPDK and this library, despite preloaded libraries. librspreload would turn IP
// sockets into rsockets, on which interface ioctls fail, while librspreload itself waits for the device to
// open. It passes descriptors that it has not created to the kernel.
//
// PMDs wait for a peer's answer without a limit; SocketTimeLimit gives their sockets one.
#include "pmd_glue/eal/own_socket.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

thread_local std::chrono::seconds t_limit{};

void limit_calls(int fd, const timeval& limit) {
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

}  // namespace

namespace faultline::glue {

SocketTimeLimit::SocketTimeLimit(std::chrono::seconds limit) {
  t_limit = limit;
}

SocketTimeLimit::~SocketTimeLimit() {
  t_limit = {};
}

}  // namespace faultline::glue

extern "C" {
int __real_accept(int fd, sockaddr* address, socklen_t* length_bytes);
int __wrap_accept(int fd, sockaddr* address, socklen_t* length_bytes);
int __wrap_socket(int domain, int type, int protocol);

int __wrap_socket(int domain, int type, int protocol) {
  const auto fd = static_cast<int>(syscall(SYS_socket, domain, type, protocol));
  if (fd >= 0 && domain == AF_UNIX && t_limit.count() > 0) limit_calls(fd, {t_limit.count(), 0});
  return fd;
}

// Linux gives no time limit of a listening socket to its connections. A PMD also accepts on EAL's interrupt
// thread.
int __wrap_accept(int fd, sockaddr* address, socklen_t* length_bytes) {
  const int accepted = __real_accept(fd, address, length_bytes);
  if (accepted < 0) return accepted;
  timeval limit{};
  socklen_t limit_bytes = sizeof limit;
  if (getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, &limit_bytes) == 0 && limit.tv_sec > 0)
    limit_calls(accepted, limit);
  return accepted;
}
}
