// SPDX-License-Identifier: BSD-3-Clause
// DPDK reads the environment in programs with raised rights too: EAL makes the folder that XDG_RUNTIME_DIR
// names. All that is linked with it here reads it by secure_getenv(3), which has nothing for such a program.
#include <cstdlib>

extern "C" {
char* __wrap_getenv(const char* name);

char* __wrap_getenv(const char* name) {
  return secure_getenv(name);
}
}
