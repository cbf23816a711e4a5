// SPDX-License-Identifier: BSD-3-Clause
// The C library's names that close, duplicate and write to descriptors, in the drop-in. Calls on descriptors
// that represent our objects are handled here.
#include <cerrno>
#include <climits>
#include <cstdint>

#include <fcntl.h>
#include <unistd.h>

#include "stack/abi/interpose/next_call.hpp"
#include "stack/abi/tree/descriptor_table.hpp"

namespace faultline::abi {

namespace {

NextCall<int(int)> next_close("close"), next_dup("dup");
NextCall<int(int, int)> next_dup2("dup2");
NextCall<int(int, int, int)> next_dup3("dup3");
NextCall<int(int, int, void*)> next_fcntl("fcntl"), next_fcntl64("fcntl64");
NextCall<int(unsigned, unsigned, int)> next_close_range("close_range");
NextCall<void(int)> next_closefrom("closefrom");
NextCall<ssize_t(int, const void*, size_t)> next_write("write");

/// Registers `descriptor` for the same object as `original`, if that one is ours.
int doubled(int original, int descriptor) {
  if (descriptor < 0) return descriptor;
  if (auto file = find_descriptor(original)) {
    if (add_descriptor(descriptor, std::move(file))) return descriptor;
    next_close(descriptor);
    errno = EMFILE;
    return -1;
  }
  return descriptor;
}

/// dup2 and dup3 close what the number referred to.
int doubled_onto(int original, int descriptor) {
  if (descriptor < 0 || original == descriptor) return descriptor;
  remove_descriptor(descriptor);
  return doubled(original, descriptor);
}

template <typename Call>
int fcntl_or(int descriptor, int command, Call call) {
  const int result = call();
  return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? doubled(descriptor, result) : result;
}

}  // namespace

extern "C" {

int abi_close(int descriptor) FAULTLINE_STANDS_BEFORE("close");
int abi_close(int descriptor) {
  if (const auto file = find_descriptor(descriptor)) {
    file->before_close();
    // Removed before the close: afterwards another thread may get the number.
    remove_descriptor(descriptor);
  }
  return next_close(descriptor);
}
int abi_close_range(unsigned first, unsigned last, int flags) FAULTLINE_STANDS_BEFORE("close_range");
int abi_close_range(unsigned first, unsigned last, int flags) {
  constexpr int kCloseOnExecOnly = 1 << 2;  // CLOSE_RANGE_CLOEXEC: they stay open
  if ((flags & kCloseOnExecOnly) == 0) remove_descriptors(first, last);
  return next_close_range(first, last, flags);
}
void abi_closefrom(int first) FAULTLINE_STANDS_BEFORE("closefrom");
void abi_closefrom(int first) {
  remove_descriptors(first < 0 ? 0U : static_cast<unsigned>(first), UINT_MAX);
  next_closefrom(first);
}

int abi_dup(int descriptor) FAULTLINE_STANDS_BEFORE("dup");
int abi_dup(int descriptor) {
  return doubled(descriptor, next_dup(descriptor));
}
int abi_dup2(int original, int descriptor) FAULTLINE_STANDS_BEFORE("dup2");
int abi_dup2(int original, int descriptor) {
  return doubled_onto(original, next_dup2(original, descriptor));
}
int abi_dup3(int original, int descriptor, int flags) FAULTLINE_STANDS_BEFORE("dup3");
int abi_dup3(int original, int descriptor, int flags) {
  return doubled_onto(original, next_dup3(original, descriptor, flags));
}
int abi_fcntl(int descriptor, int command, void* argument) FAULTLINE_STANDS_BEFORE("fcntl");
int abi_fcntl(int descriptor, int command, void* argument) {
  return fcntl_or(descriptor, command, [=] { return next_fcntl(descriptor, command, argument); });
}
int abi_fcntl64(int descriptor, int command, void* argument) FAULTLINE_STANDS_BEFORE("fcntl64");
int abi_fcntl64(int descriptor, int command, void* argument) {
  return fcntl_or(descriptor, command, [=] { return next_fcntl64(descriptor, command, argument); });
}

ssize_t abi_write(int descriptor, const void* bytes, size_t length) FAULTLINE_STANDS_BEFORE("write");
ssize_t abi_write(int descriptor, const void* bytes, size_t length) {
  const auto file = find_descriptor(descriptor);
  if (file == nullptr) return next_write(descriptor, bytes, length);
  const ssize_t written = file->write(bytes, length);
  if (written >= 0) return written;
  errno = static_cast<int>(-written);
  return -1;
}

}  // extern "C"

}  // namespace faultline::abi
