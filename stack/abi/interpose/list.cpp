// SPDX-License-Identifier: BSD-3-Clause
// The names that the hooks interpose on, for guards.hpp. Part of every library and program that has the
// hooks.
#include <array>

#include "odp/guards.hpp"

namespace faultline::odp {
namespace {

constexpr std::array kMemoryNames{// Calls that unmap, first.
                                  "munmap",     "mmap",        "mremap",    "mmap64",      "madvise",
                                  "mprotect",   "shmat",       "shmdt",     "brk",         "sbrk",
                                  "fallocate",  "fallocate64", "ftruncate", "ftruncate64", "truncate",
                                  "truncate64", "ioctl"};
constexpr std::array kSignalNames{"sigaction", "signal", "sigset", "pthread_sigmask", "sigprocmask"};

// Its address also identifies the object that contains the hooks.
constinit const HookedNames kNames{.memory = kMemoryNames, .signals = kSignalNames};

__attribute__((constructor)) void announce() {
  announce_hooks(kNames);
}

}  // namespace
}  // namespace faultline::odp
