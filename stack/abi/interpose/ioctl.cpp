// SPDX-License-Identifier: BSD-3-Clause
// The C library's ioctl, in libfaultline.so and the drop-in: for the program's own userfaultfd
// (program_userfault.hpp). Every other request costs four compares.
#include <cstdarg>

#include "odp/invalidation/program_userfault.hpp"
#include "stack/abi/interpose/next_definition.hpp"

extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start has just done it
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return faultline::odp::program_ioctl(fd, request, argument, faultline::odp::next::ioctl);
}
