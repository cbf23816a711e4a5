// SPDX-License-Identifier: BSD-3-Clause
// Blocks all signals on this thread. A handler might call munmap, madvise or fork, and wait for a lock that
// this thread holds. Uses bare system calls, because the C library's functions may be hooked.
#pragma once

#include <csignal>
#include <cstdint>

#include <sys/syscall.h>
#include <unistd.h>

namespace faultline {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    constexpr uint64_t kAll = ~uint64_t{0};
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &kAll, &before_, sizeof before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof before_); }

 private:
  uint64_t before_ = 0;  ///< the kernel's signal set, 64 bits on x86-64
};

}  // namespace faultline
