// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/eal/eal_fork.hpp"

#include <cerrno>
#include <string_view>

#include <rte_errno.h>

#include "pmd_glue/eal/eal.hpp"
#include "stack/base/process/fork_generation.hpp"

namespace {
uint32_t owner = 0;             ///< the generation that EAL was started in
bool memory_is_shared = false;  ///< a peer maps EAL's memory
}  // namespace

extern "C" {
// EAL's own function (eal_private.h): resets the list of watched descriptors and starts the interrupt thread.
int rte_eal_intr_init(void);

int __real_memfd_create(const char* name, unsigned flags);
int __wrap_memfd_create(const char* name, unsigned flags);
int __real_unlink(const char* path);
int __wrap_unlink(const char* path);

// Without huge pages EAL prefers to map its memory from a shared file (eal_memory.c): a child would write
// into its parent's heap and frames. If the file fails, EAL uses private memory, which a fork copies. A
// port of kind virtio_user needs the file, since its peer maps it: such a process cannot continue with EAL
// after a fork, as with huge pages.
int __wrap_memfd_create(const char* name, unsigned flags) {
  if (std::string_view(name) == "nohuge" && !memory_is_shared) {
    errno = ENOSYS;
    return -1;
  }
  return __real_memfd_create(name, flags);
}

// A child that exits would remove its parent's telemetry socket (telemetry.c, unlink_sockets).
int __wrap_unlink(const char* path) {
  if (owner != faultline::fork_generation() &&
      std::string_view(path).find("/dpdk_telemetry.") != std::string_view::npos)
    return 0;
  return __real_unlink(path);
}
}

namespace faultline::glue {

void own_eal() {
  owner = fork_generation();
}

void share_eal_memory() {
  memory_is_shared = true;
}

bool revive_eal() {
  bool started = false;
  int error = 0;
  const int no_thread = on_starter_thread([&] {
    started = rte_eal_intr_init() == 0;
    error = rte_errno;
  });
  if (!started) errno = no_thread != 0 ? no_thread : error;  // errno is thread-local
  return started;
}

}  // namespace faultline::glue
