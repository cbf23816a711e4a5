// SPDX-License-Identifier: BSD-3-Clause
// _exit(2) and _Exit. Forked jobs and daemons end with them, without the handlers of atexit(3); the exit hook
// runs before. The calling thread may be in a signal handler, or in the child of a vfork(2), which shares its
// parent's memory and is left alone.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stack/base/process/exit_hook.hpp"

namespace {

using Exit = void(int);
Exit* next_exit = nullptr;

// Looked up early: dlsym(3) takes the loader's lock, which a signal handler may have interrupted.
__attribute__((constructor)) void find_next() {
  next_exit = reinterpret_cast<Exit*>(dlsym(RTLD_NEXT, "_exit"));
}

[[noreturn]] void end_process(int status) {
  faultline::odp::run_exit_hook();
  if (next_exit != nullptr) next_exit(status);
  // As the C library does.
  for (;;) syscall(SYS_exit_group, status);
}

}  // namespace

extern "C" {
__attribute__((visibility("default"), noreturn)) void _exit(int status) {
  end_process(status);
}

__attribute__((visibility("default"), noreturn)) void _Exit(int status) noexcept {
  end_process(status);
}
}
