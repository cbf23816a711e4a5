// SPDX-License-Identifier: BSD-3-Clause
#include "odp/mappings/own_mappings.hpp"

#include <atomic>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odp/mappings/holes.hpp"
#include "odp/regions/child_table.hpp"
#include "odp/regions/page_map.hpp"

namespace faultline::odp {
namespace {

/// The list shows the memory of the process that opened it: a forked child needs its own descriptor.
struct Kept {
  std::atomic<int> descriptor{-1};
  std::atomic<pid_t> owner{0};
  std::atomic<uint64_t> device{0};
  std::atomic<uint64_t> inode{0};
};
constinit Kept kept;

pid_t own_pid() {
  return static_cast<pid_t>(syscall(SYS_getpid));
}

int open_list() {
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC));
}

bool identify(int descriptor, struct stat& facts) {
  return syscall(SYS_fstat, descriptor, &facts) == 0;
}

/// Returns the kept descriptor, or -1. The program may have closed it and reused its number for another
/// file.
int find_kept() {
  const int descriptor = kept.descriptor.load(std::memory_order_acquire);
  struct stat facts {};
  const bool is_ours = descriptor >= 0 && kept.owner.load(std::memory_order_relaxed) == own_pid() &&
                       identify(descriptor, facts) &&
                       facts.st_dev == kept.device.load(std::memory_order_relaxed) &&
                       facts.st_ino == kept.inode.load(std::memory_order_relaxed);
  return is_ours ? descriptor : -1;
}

}  // namespace

void keep_own_mappings() {
  if (find_kept() >= 0) return;
  const int descriptor = open_list();
  struct stat facts {};
  if (descriptor < 0 || !identify(descriptor, facts)) return;
  // If two first domains start at once, one of their descriptors is kept; the other stays open and unused.
  kept.descriptor.store(-1, std::memory_order_release);
  kept.owner.store(own_pid(), std::memory_order_relaxed);
  kept.device.store(facts.st_dev, std::memory_order_relaxed);
  kept.inode.store(facts.st_ino, std::memory_order_relaxed);
  kept.descriptor.store(descriptor, std::memory_order_release);
}

OwnMappings::OwnMappings() : descriptor_(find_kept()) {
  if (descriptor_ >= 0) return;
  descriptor_ = open_list();
  is_kept_ = false;
}

OwnMappings::~OwnMappings() {
  if (!is_kept_ && descriptor_ >= 0) syscall(SYS_close, descriptor_);
}

uint64_t end_of_mapped(uint64_t start) {
  uint64_t mapped = start;
  uint64_t step = kPageBytes;
  // Increases the step while it succeeds, then decreases it.
  while (mapped + step <= kAddressSpaceBytes && !has_hole({mapped, mapped + step})) {
    mapped += step;
    step *= 2;
  }
  for (; step >= kPageBytes; step /= 2)
    if (mapped + step <= kAddressSpaceBytes && !has_hole({mapped, mapped + step})) mapped += step;
  return mapped;
}

}  // namespace faultline::odp
