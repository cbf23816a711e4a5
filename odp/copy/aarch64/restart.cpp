// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstdint>
#include <span>

#include "odp/copy/tolerant_copy.hpp"

// The address at which the kernel resumes a sequence that it aborts. The four bytes before it are the
// signature that glibc registers (rseq(2), RSEQ_SIG): BRK #0x45E0. The sequences use no stack, so that the
// abort can return from any place in them.
asm(R"(
  .pushsection .text
  .p2align 5
  .inst 0xd428bc00
  .globl faultline_odp_revoked
  .hidden faultline_odp_revoked
  .type faultline_odp_revoked, %function
faultline_odp_revoked:
  .cfi_startproc
  mov x0, #-1
  ret
  .globl faultline_odp_revoked_fault
  .hidden faultline_odp_revoked_fault
faultline_odp_revoked_fault:
  mov x0, #0
  ret
  .cfi_endproc
  .size faultline_odp_revoked, . - faultline_odp_revoked
  .popsection
)");

extern "C" {
__attribute__((visibility("hidden"))) extern const char faultline_odp_revoked[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_revoked_fault[];
}

namespace faultline::odp {
namespace {

/// For a fault in a sequence the kernel has already put the abort address into the signal frame.
const std::array<FaultRange, 1> kRestartRanges{
    FaultRange{reinterpret_cast<uintptr_t>(faultline_odp_revoked),
               reinterpret_cast<uintptr_t>(faultline_odp_revoked) + 1,
               reinterpret_cast<uintptr_t>(faultline_odp_revoked_fault)}};

}  // namespace

std::span<const FaultRange> restart_ranges() {
  return kRestartRanges;
}

}  // namespace faultline::odp
