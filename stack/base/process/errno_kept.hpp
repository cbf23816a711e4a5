// SPDX-License-Identifier: BSD-3-Clause
// A hook makes system calls of its own around the program's: errno stays the program's.
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
