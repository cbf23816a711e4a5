// SPDX-License-Identifier: BSD-3-Clause
// DPDK reads the environment in programs with raised rights too: EAL creates the directory that
// XDG_RUNTIME_DIR names. So all code that is linked here reads it by secure_getenv(3), which returns nothing
// in such a program.
#include <cstdlib>

extern "C" {
char* __wrap_getenv(const char* name);

char* __wrap_getenv(const char* name) {
  return secure_getenv(name);
}
}
