// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstdint>
#include <span>

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
__attribute__((visibility("hidden"))) extern const char faultline_odp_revoked[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_revoked_fault[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_revoked_avx[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_revoked_avx_fault[];
}

namespace faultline::odp {
namespace {

/// For a fault in a sequence the kernel has already put the abort address into the signal frame.
const std::array<FaultRange, 2> kRestartRanges{
    FaultRange{address_of(faultline_odp_revoked), address_of(faultline_odp_revoked) + 1,
               address_of(faultline_odp_revoked_fault)},
    FaultRange{address_of(faultline_odp_revoked_avx), address_of(faultline_odp_revoked_avx) + 1,
               address_of(faultline_odp_revoked_avx_fault)}};

}  // namespace

std::span<const FaultRange> restart_ranges() {
  return kRestartRanges;
}

}  // namespace faultline::odp
