// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/process/exit_hook.hpp"

#include <atomic>

#include <sys/types.h>
#include <unistd.h>

namespace faultline::odp {
namespace {

constinit std::atomic<void (*)()> hook_of_process{nullptr};
constinit std::atomic<pid_t> process{0};

}  // namespace

void set_exit_hook(void (*hook)()) {
  process.store(getpid(), std::memory_order_relaxed);
  hook_of_process.store(hook, std::memory_order_release);
}

void run_exit_hook() {
  // A child of fork(2) inherits the parent's devices, and a child of vfork(2) shares the parent's memory.
  if (process.load(std::memory_order_relaxed) != getpid()) return;
  if (auto* const hook = hook_of_process.exchange(nullptr, std::memory_order_acq_rel)) hook();
}

}  // namespace faultline::odp
