// SPDX-License-Identifier: BSD-3-Clause
// Creates kernel sockets for DPDK and this library, despite preloaded libraries. librspreload would turn IP
// sockets into rsockets, on which interface ioctls fail, while librspreload itself waits for the device to
// open. It passes descriptors that it has not created to the kernel.
#include <sys/syscall.h>
#include <unistd.h>

extern "C" {
int __wrap_socket(int domain, int type, int protocol);

int __wrap_socket(int domain, int type, int protocol) {
  return static_cast<int>(syscall(SYS_socket, domain, type, protocol));
}
}
