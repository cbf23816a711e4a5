// SPDX-License-Identifier: BSD-3-Clause
// Preserves the program's errno across the system calls that a hook makes around the program's call.
#pragma once

#include <cerrno>

namespace faultline {

class ErrnoKept {
 public:
  ErrnoKept() = default;
  ErrnoKept(const ErrnoKept&) = delete;
  ErrnoKept& operator=(const ErrnoKept&) = delete;
  ~ErrnoKept() { errno = before_; }

 private:
  const int before_ = errno;
};

}  // namespace faultline
