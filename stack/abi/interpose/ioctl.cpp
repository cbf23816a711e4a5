// SPDX-License-Identifier: BSD-3-Clause
// The C library's ioctl, in libfaultline.so and the drop-in: for the program's own userfaultfd
// (program_userfault.hpp), and in the drop-in for network interfaces. Every other request costs five
// compares.
#include <cstdarg>

#include "odp/invalidation/program_userfault.hpp"
#include "stack/abi/interpose/next_definition.hpp"
#include "stack/abi/interpose/socket_ioctl.hpp"

extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start has just done it
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (faultline::abi::is_socket_request(request))
    if (const auto answer = faultline::abi::socket_ioctl.load(std::memory_order_relaxed); answer != nullptr)
      if (const auto result = answer(fd, request, argument)) return *result;
  return faultline::odp::program_ioctl(fd, request, argument, faultline::odp::next::ioctl);
}
