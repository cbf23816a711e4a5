// SPDX-License-Identifier: BSD-3-Clause
#include "odp/copy/restartable_copy.hpp"

#include <dlfcn.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" {
std::atomic<uint64_t> faultline_odp_revocations alignas(64){1};
}

namespace faultline::odp {

constinit std::atomic<ptrdiff_t> restart_offset_bytes{0};

namespace {

constexpr ptrdiff_t kSequenceField = 8;  ///< offsetof(struct rseq, rseq_cs), linux/rseq.h

constinit std::atomic<bool> is_disabled{false};

// From linux/membarrier.h of Linux 5.10, which older headers lack.
constexpr int kRestart = 1 << 7;          ///< MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ
constexpr int kRegisterRestart = 1 << 8;  ///< MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ

}  // namespace

void prepare_restartable_copies() {
  if (is_disabled.load(std::memory_order_relaxed)) return;
  // Resolved at run time, not linked: C libraries before glibc 2.35 do not register threads.
  const auto* const offset = static_cast<const ptrdiff_t*>(dlsym(RTLD_DEFAULT, "__rseq_offset"));
  const auto* const size = static_cast<const unsigned*>(dlsym(RTLD_DEFAULT, "__rseq_size"));
  if (offset == nullptr || size == nullptr || *size == 0) return;
  // A registration lasts as long as the address space; a child of fork has to register itself.
  if (syscall(SYS_membarrier, kRegisterRestart, 0, 0) != 0) return;
  restart_offset_bytes.store(*offset + kSequenceField, std::memory_order_relaxed);
}

bool has_restartable_copies() {
  return restart_offset_bytes.load(std::memory_order_relaxed) != 0;
}

void disable_restartable_copies(bool disabled) {
  is_disabled.store(disabled, std::memory_order_relaxed);
  if (disabled)
    restart_offset_bytes.store(0, std::memory_order_relaxed);
  else
    prepare_restartable_copies();
}

bool restart_copies() {
  return has_restartable_copies() && syscall(SYS_membarrier, kRestart, 0, 0) == 0;
}

}  // namespace faultline::odp
