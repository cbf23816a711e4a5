// SPDX-License-Identifier: BSD-3-Clause
// Names that rdma-core exports without a header: reading sysfs, memory ranges for fork, and the GID type for
// ibv_devinfo.
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "stack/abi/verbs/private_versions.hpp"
#include "stack/base/process/process_local.hpp"
#include "stack/verbs/objects/objects.hpp"

namespace faultline::abi {

namespace {

/// rdma-core's enum ibv_gid_type_sysfs: the values of the kernel's gid_attrs/types files.
enum class GidTypeSysfs : int { ib_or_roce_v1 = 0, roce_v2 = 1 };

/// The path on the first call, as in rdma-core.
struct Sysfs {
  Sysfs() {
    // As in rdma-core, the variable is ignored in setuid programs (secure_getenv(3)).
    if (const char* const set = ::secure_getenv("SYSFS_PATH")) path = set;
    while (path.size() > 1 && path.back() == '/') path.pop_back();
  }
  std::string path = "/sys";
};
constinit ProcessLocal<Sysfs> sysfs;

/// Reads a file's first `size` bytes, without a trailing newline. Returns the length, or -1 with errno.
int read_text(const char* path, char* buffer, size_t size) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t length = ::read(fd, buffer, size);
  const int error = errno;
  ::close(fd);
  if (length < 0) {
    errno = error;
    return -1;
  }
  if (length > 0 && buffer[length - 1] == '\n') buffer[--length] = '\0';
  if (static_cast<size_t>(length) < size) buffer[length] = '\0';
  return static_cast<int>(length);
}

}  // namespace

FAULTLINE_VERB const char* ibv_get_sysfs_path() {
  return sysfs.get().path.c_str();
}

FAULTLINE_VERB int ibv_read_sysfs_file(const char* directory, const char* file, char* buffer, size_t size) {
  std::array<char, 4096> path;
  const int length = std::snprintf(path.data(), path.size(), "%s/%s", directory, file);
  if (length < 0 || static_cast<size_t>(length) >= path.size()) {
    errno = ENAMETOOLONG;
    return -1;
  }
  return read_text(path.data(), buffer, size);
}

FAULTLINE_VERB __attribute__((format(printf, 4, 5))) int private_read_device_file(char* buffer, size_t size,
                                                                                  void* /*sysfs_device*/,
                                                                                  const char* /*format*/,
                                                                                  ...) {
  // The sysfs device belongs to a provider, and none of those is in use.
  if (size > 0) buffer[0] = '\0';
  errno = ENOENT;
  return -1;
}
FAULTLINE_PRIVATE(ibv_read_ibdev_sysfs_file, private_read_device_file);

FAULTLINE_VERB int private_query_gid_type(ibv_context* context, uint8_t port_num, unsigned int index,
                                          GidTypeSysfs* type) {
  ibv_gid_entry entry{};
  const int error = _ibv_query_gid_ex(context, port_num, index, &entry, 0, sizeof entry);
  if (error != 0 && error != ENODATA) {
    errno = error;
    return -1;
  }
  // An empty entry has the unnamed type.
  *type = error == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? GidTypeSysfs::roce_v2
                                                               : GidTypeSysfs::ib_or_roce_v1;
  return 0;
}
FAULTLINE_PRIVATE(ibv_query_gid_type, private_query_gid_type);

// ibv_fork_init reports that nothing needs to be done for a fork, so these do nothing.
FAULTLINE_VERB int ibv_dontfork_range(void* /*base*/, size_t /*size*/) {
  return 0;
}
FAULTLINE_VERB int ibv_dofork_range(void* /*base*/, size_t /*size*/) {
  return 0;
}

}  // namespace faultline::abi
