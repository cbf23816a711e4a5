// SPDX-License-Identifier: BSD-3-Clause
#include "odp/copy/restartable_copy.hpp"

#include <array>
#include <span>

#include <dlfcn.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odp/copy/tolerant_copy.hpp"

// The address at which the kernel resumes a sequence that it aborts. The four bytes before it are the
// signature that glibc registers (rseq(2), RSEQ_SIG), encoded as the operand of an undefined instruction.
// The sequences use no stack, so that the abort can return from any place in them.
asm(R"(
  .pushsection .text
  .p2align 5
  .byte 0x0f, 0xb9, 0x3d
  .long 0x53053053
  .globl faultline_odp_revoked
  .hidden faultline_odp_revoked
  .type faultline_odp_revoked, @function
faultline_odp_revoked:
  .cfi_startproc
  movq $-1, %rax
  ret
  .globl faultline_odp_revoked_fault
  .hidden faultline_odp_revoked_fault
faultline_odp_revoked_fault:
  xorl %eax, %eax
  ret
  .cfi_endproc
  .size faultline_odp_revoked, . - faultline_odp_revoked

  .p2align 5
  .byte 0x0f, 0xb9, 0x3d
  .long 0x53053053
  .globl faultline_odp_revoked_avx
  .hidden faultline_odp_revoked_avx
  .type faultline_odp_revoked_avx, @function
faultline_odp_revoked_avx:
  .cfi_startproc
  vzeroupper
  movq $-1, %rax
  ret
  .globl faultline_odp_revoked_avx_fault
  .hidden faultline_odp_revoked_avx_fault
faultline_odp_revoked_avx_fault:
  vzeroupper
  xorl %eax, %eax
  ret
  .cfi_endproc
  .size faultline_odp_revoked_avx, . - faultline_odp_revoked_avx
  .popsection
)");

extern "C" {
std::atomic<uint64_t> faultline_odp_revocations alignas(64){1};
__attribute__((visibility("hidden"))) extern const char faultline_odp_revoked[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_revoked_fault[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_revoked_avx[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_revoked_avx_fault[];
}

namespace faultline::odp {

constinit std::atomic<ptrdiff_t> restart_offset_bytes{0};

namespace {

constexpr ptrdiff_t kSequenceField = 8;  ///< offsetof(struct rseq, rseq_cs), linux/rseq.h

constinit std::atomic<bool> is_disabled{false};

// From linux/membarrier.h of Linux 5.10, which older headers lack.
constexpr int kRestart = 1 << 7;          ///< MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ
constexpr int kRegisterRestart = 1 << 8;  ///< MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ

uintptr_t address_of(const char* label) {
  return reinterpret_cast<uintptr_t>(label);
}

/// For a fault in a sequence the kernel has already put the abort address into the signal frame.
const std::array<FaultRange, 2> kRanges{
    FaultRange{address_of(faultline_odp_revoked), address_of(faultline_odp_revoked) + 1,
               address_of(faultline_odp_revoked_fault)},
    FaultRange{address_of(faultline_odp_revoked_avx), address_of(faultline_odp_revoked_avx) + 1,
               address_of(faultline_odp_revoked_avx_fault)}};

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

std::span<const FaultRange> restart_ranges() {
  return kRanges;
}

}  // namespace faultline::odp
