// SPDX-License-Identifier: BSD-3-Clause
// No signal handler of the program runs on this thread meanwhile: it might call munmap, madvise or fork, and
// want a lock that this thread holds. Bare system calls: the C library's names may be hooked.
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
