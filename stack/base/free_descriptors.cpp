// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/free_descriptors.hpp"

#include <cerrno>

#include <fcntl.h>

namespace faultline {

rlim_t descriptor_limit() {
  constexpr rlim_t kUsual = 1024;
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : kUsual;
}

size_t count_free_descriptors(size_t enough) {
  const rlim_t limit = descriptor_limit();
  size_t found = 0;
  for (rlim_t number = 0; number < limit && found < enough; ++number)
    if (fcntl(static_cast<int>(number), F_GETFD) < 0 && errno == EBADF) ++found;
  return found;
}

}  // namespace faultline
