// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/files/open_sight.hpp"

#include <cerrno>
#include <memory>
#include <string>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stack/abi/interpose/next_call.hpp"
#include "stack/abi/rdma_cm/channel.hpp"
#include "stack/abi/tree/descriptor_table.hpp"

namespace faultline::abi {
namespace {

int open_text(const std::string& text, int flags) {
  const int descriptor = static_cast<int>(
      syscall(SYS_memfd_create, "faultline-attribute", (flags & O_CLOEXEC) != 0 ? MFD_CLOEXEC : 0));
  if (descriptor < 0) return -1;
  const auto written = syscall(SYS_pwrite64, descriptor, text.data(), text.size(), 0);
  if (written == static_cast<long>(text.size())) return descriptor;
  syscall(SYS_close, descriptor);
  return fail_with(ENOMEM);
}

/// A read of an epoll descriptor fails with EINVAL, and so do reads of the kernel's file of such a row
/// (show_port_gid_attr() of Linux).
int open_empty_row(int flags) {
  return static_cast<int>(syscall(SYS_epoll_create1, (flags & O_CLOEXEC) != 0 ? EPOLL_CLOEXEC : 0));
}

int open_directory(const Sight& sight, int flags) {
  // The descriptor refers to a kernel directory, for calls that reach the kernel: a read fails with EISDIR.
  // Of the interfaces it is the kernel's own, since calls with paths below those of the host reach it.
  const char* const place = sight.path == kInterfaces ? sight.path.c_str() : "/proc";
  const auto descriptor = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, place, O_RDONLY | O_DIRECTORY | (flags & (O_CLOEXEC | O_PATH))));
  if (descriptor < 0) return -1;
  if (add_descriptor(descriptor, std::make_shared<OpenFile>(sight))) return descriptor;
  syscall(SYS_close, descriptor);
  return fail_with(EMFILE);
}

}  // namespace

int open_sight(const Sight& sight, int flags) {
  if (!sight.node) return fail_with((flags & O_CREAT) != 0 && sight.error == ENOENT ? EACCES : sight.error);
  if ((flags & O_CREAT) != 0 && (flags & O_EXCL) != 0) return fail_with(EEXIST);
  if ((flags & O_NOFOLLOW) != 0 && (flags & O_PATH) == 0 && !sight.link.empty())
    return fail_with((flags & O_DIRECTORY) != 0 ? ENOTDIR : ELOOP);
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  const bool is_directory = sight.node->kind == NodeKind::directory;
  if ((flags & O_DIRECTORY) != 0 && !is_directory) return fail_with(ENOTDIR);
  switch (sight.node->kind) {
    case NodeKind::directory:
      return writes ? fail_with(EISDIR) : open_directory(sight, flags);
    case NodeKind::file:
      return writes ? fail_with(EACCES) : open_text(sight.node->text, flags);
    case NodeKind::empty_row:
      return writes ? fail_with(EACCES) : open_empty_row(flags);
    case NodeKind::verbs_device:
      // /dev/null suffices: our contexts send no commands to it.
      return static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/dev/null", flags & ~(O_CREAT | O_TRUNC)));
    case NodeKind::connection_manager:
      return CmChannel::open(sight, flags);
    case NodeKind::socket:
    case NodeKind::link:
      break;
  }
  return fail_with(ENXIO);
}

}  // namespace faultline::abi
