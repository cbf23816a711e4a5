// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/private_file.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace faultline {

int open_private_file(const std::string& path) {
  constexpr mode_t kOwnerAlone = 0600;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, kOwnerAlone);
  if (fd < 0) return -1;
  struct stat status {};
  // A path that is not a regular file, such as a pipe to a capture viewer, keeps its mode and is not
  // truncated.
  const bool is_file = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  if (!is_file || (fchmod(fd, kOwnerAlone) == 0 && ftruncate(fd, 0) == 0)) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace faultline
