// SPDX-License-Identifier: BSD-3-Clause
// The sockets of DPDK and of this library are the kernel's, whatever else is preloaded: librspreload would
// make rsockets of those over IP, on which no interface can be asked for anything, while it is itself waiting
// for the device to open. A descriptor that it has not made, it leaves to the kernel.
#include <sys/syscall.h>
#include <unistd.h>

extern "C" {
int __wrap_socket(int domain, int type, int protocol);

int __wrap_socket(int domain, int type, int protocol) {
  return static_cast<int>(syscall(SYS_socket, domain, type, protocol));
}
}
