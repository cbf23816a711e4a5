// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/process/fork_generation.hpp"

#include <atomic>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stack/base/process/fork_mutex.hpp"

namespace faultline {
namespace {

using Flag = std::atomic<uint32_t>;

constinit std::atomic<uint32_t> generation{0};
constinit std::atomic<bool> forks_are_watched{false};
constinit std::atomic<const ForkHandlers*> room{nullptr};
/// Points to a flag that is 1, in memory that the kernel zeroes in a child (madvise(2), MADV_WIPEONFORK).
/// Null if the mapping failed.
constinit std::atomic<Flag*> child_is_prepared{nullptr};

void make_flag() {
  // Bare system calls: the library interposes on these functions.
  const long memory =
      syscall(SYS_mmap, nullptr, sizeof(Flag), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == -1) return;
  syscall(SYS_madvise, memory, sizeof(Flag), MADV_WIPEONFORK);
  auto* const flag = reinterpret_cast<Flag*>(memory);
  flag->store(1, std::memory_order_relaxed);
  child_is_prepared.store(flag, std::memory_order_release);
}

void prepare() {
  ForkMutex::lock_all();
  if (const ForkHandlers* const handlers = room.load(std::memory_order_acquire)) handlers->prepare();
}

void in_parent() {
  if (const ForkHandlers* const handlers = room.load(std::memory_order_acquire)) handlers->in_parent();
  ForkMutex::unlock_all();
}

void in_child() {
  generation.fetch_add(1, std::memory_order_relaxed);
  ForkMutex::reset_all();
  if (const ForkHandlers* const handlers = room.load(std::memory_order_acquire)) handlers->in_child();
  if (Flag* const flag = child_is_prepared.load(std::memory_order_relaxed))
    flag->store(1, std::memory_order_seq_cst);
}

}  // namespace

void set_fork_handlers(const ForkHandlers& handlers) {
  room.store(&handlers, std::memory_order_release);
}

void watch_forks() {
  if (forks_are_watched.exchange(true)) return;
  make_flag();
  pthread_atfork(prepare, in_parent, in_child);
}

uint32_t fork_generation() {
  // Watch forks even before a domain exists: the caller will compare this value with a later generation.
  if (!forks_are_watched.load(std::memory_order_relaxed)) watch_forks();
  // The flag is 0 in a child in which no handler ran. That child has this thread alone.
  if (const Flag* const flag = child_is_prepared.load(std::memory_order_acquire);
      flag != nullptr && flag->load(std::memory_order_relaxed) == 0)
    in_child();
  return generation.load(std::memory_order_relaxed);
}

}  // namespace faultline
