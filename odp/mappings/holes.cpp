// SPDX-License-Identifier: BSD-3-Clause
#include "odp/mappings/holes.hpp"

#include <cerrno>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace faultline::odp {

bool has_hole(const AddressRange& range) {
  return syscall(SYS_msync, range.start, range.end - range.start, MS_ASYNC) != 0 && errno == ENOMEM;
}

}  // namespace faultline::odp
