// SPDX-License-Identifier: BSD-3-Clause
#include "odp/copy/tolerant_copy.hpp"

#include <array>

#include "odp/copy/x86_64/guard.hpp"

// System V ABI: rdi = to, rsi = from, rdx = length; rax = bytes certainly copied. rax is current at every
// instruction that may fault, so that the fixup has nothing to compute. No stack is used: the fixup can
// simply return.
asm(R"(
  .pushsection .text
  .p2align 5
  .globl faultline_odp_copy_movsb
  .hidden faultline_odp_copy_movsb
  .type faultline_odp_copy_movsb, @function
faultline_odp_copy_movsb:
  .cfi_startproc
  endbr64
  movq %rdx, %rcx
faultline_odp_copy_movsb_begin:
  rep movsb
faultline_odp_copy_movsb_end:
faultline_odp_copy_movsb_fixup:
  movq %rdx, %rax
  subq %rcx, %rax
  ret
  .cfi_endproc
  .size faultline_odp_copy_movsb, . - faultline_odp_copy_movsb

  .p2align 5
  .globl faultline_odp_copy_avx2
  .hidden faultline_odp_copy_avx2
  .type faultline_odp_copy_avx2, @function
faultline_odp_copy_avx2:
  .cfi_startproc
  endbr64
  xorl %eax, %eax
faultline_odp_copy_avx2_begin:
  cmpq $32, %rdx
  jb 30f
  cmpq $64, %rdx
  ja 10f
  vmovdqu (%rsi), %ymm0
  vmovdqu -32(%rsi,%rdx), %ymm1
  vmovdqu %ymm0, (%rdi)
  vmovdqu %ymm1, -32(%rdi,%rdx)
  jmp 90f
10:
  cmpq $128, %rdx
  ja 20f
  vmovdqu (%rsi), %ymm0
  vmovdqu 32(%rsi), %ymm1
  vmovdqu -64(%rsi,%rdx), %ymm2
  vmovdqu -32(%rsi,%rdx), %ymm3
  vmovdqu %ymm0, (%rdi)
  vmovdqu %ymm1, 32(%rdi)
  vmovdqu %ymm2, -64(%rdi,%rdx)
  vmovdqu %ymm3, -32(%rdi,%rdx)
  jmp 90f
20:
  leaq -128(%rdx), %rcx
  vmovdqu (%rsi,%rcx), %ymm4
  vmovdqu 32(%rsi,%rcx), %ymm5
  vmovdqu 64(%rsi,%rcx), %ymm6
  vmovdqu 96(%rsi,%rcx), %ymm7
  .p2align 4
21:
  vmovdqu (%rsi,%rax), %ymm0
  vmovdqu 32(%rsi,%rax), %ymm1
  vmovdqu 64(%rsi,%rax), %ymm2
  vmovdqu 96(%rsi,%rax), %ymm3
  vmovdqu %ymm0, (%rdi,%rax)
  vmovdqu %ymm1, 32(%rdi,%rax)
  vmovdqu %ymm2, 64(%rdi,%rax)
  vmovdqu %ymm3, 96(%rdi,%rax)
  addq $128, %rax
  cmpq %rcx, %rax
  jb 21b
  vmovdqu %ymm4, (%rdi,%rcx)
  vmovdqu %ymm5, 32(%rdi,%rcx)
  vmovdqu %ymm6, 64(%rdi,%rcx)
  vmovdqu %ymm7, 96(%rdi,%rcx)
  jmp 90f
30:
  cmpq $16, %rdx
  jb 40f
  vmovdqu (%rsi), %xmm0
  vmovdqu -16(%rsi,%rdx), %xmm1
  vmovdqu %xmm0, (%rdi)
  vmovdqu %xmm1, -16(%rdi,%rdx)
  jmp 91f
40:
  cmpq $8, %rdx
  jb 50f
  movq (%rsi), %rcx
  movq -8(%rsi,%rdx), %r8
  movq %rcx, (%rdi)
  movq %r8, -8(%rdi,%rdx)
  jmp 91f
50:
  cmpq $4, %rdx
  jb 60f
  movl (%rsi), %ecx
  movl -4(%rsi,%rdx), %r8d
  movl %ecx, (%rdi)
  movl %r8d, -4(%rdi,%rdx)
  jmp 91f
60:
  testq %rdx, %rdx
  jz 91f
  movzbl (%rsi), %ecx
  cmpq $2, %rdx
  jb 61f
  movzwl -2(%rsi,%rdx), %r8d
  movw %r8w, -2(%rdi,%rdx)
61:
  movb %cl, (%rdi)
  jmp 91f
faultline_odp_copy_avx2_end:
90:
  vzeroupper
91:
  movq %rdx, %rax
  ret
faultline_odp_copy_avx2_fixup:
  vzeroupper
  ret
  .cfi_endproc
  .size faultline_odp_copy_avx2, . - faultline_odp_copy_avx2
  .popsection
)");

// The guarded forms (restartable_copy.hpp): rcx = the ticket. Each length class has its own sequence, which
// commits at the last store. A repeated copy must not store bytes that a program, which polls the last byte,
// may have seen and replaced.
// No store before the last one contains the last byte; a value of 1, 2, 4, 8, 16 or 32 bytes is stored at
// once.
#define FAULTLINE_AVX_GUARD(NAME) \
  FAULTLINE_GUARD("faultline_odp_copy_" NAME, "%rcx", "%r8", "faultline_odp_revoked_avx")
asm("  .pushsection .text\n"
    "  .p2align 5\n"
    "  .globl faultline_odp_guarded_copy_movsb\n"
    "  .hidden faultline_odp_guarded_copy_movsb\n"
    "  .type faultline_odp_guarded_copy_movsb, @function\n"
    "faultline_odp_guarded_copy_movsb:\n"
    "  .cfi_startproc\n"
    "  endbr64\n" FAULTLINE_GUARD("faultline_odp_copy_bytes", "%rcx", "%r8", "faultline_odp_revoked") R"(
  movq %rdx, %rcx
  rep movsb
faultline_odp_copy_bytes_commit:
  movq %rdx, %rax
  ret
  .cfi_endproc
  .size faultline_odp_guarded_copy_movsb, . - faultline_odp_guarded_copy_movsb

  .p2align 5
  .globl faultline_odp_guarded_copy_avx2
  .hidden faultline_odp_guarded_copy_avx2
  .type faultline_odp_guarded_copy_avx2, @function
faultline_odp_guarded_copy_avx2:
  .cfi_startproc
  endbr64
  cmpq $32, %rdx
  jbe 30f
  cmpq $64, %rdx
  ja 10f
)" FAULTLINE_AVX_GUARD("to_64") R"(
  vmovdqu (%rsi), %ymm0
  vmovdqu -32(%rsi,%rdx), %ymm1
  vmovdqu %ymm0, (%rdi)
  vmovdqu %ymm1, -32(%rdi,%rdx)
faultline_odp_copy_to_64_commit:
  vzeroupper
  movq %rdx, %rax
  ret
10:
  cmpq $128, %rdx
  ja 20f
)" FAULTLINE_AVX_GUARD("to_128") R"(
  vmovdqu (%rsi), %ymm0
  vmovdqu 32(%rsi), %ymm1
  vmovdqu -64(%rsi,%rdx), %ymm2
  vmovdqu -32(%rsi,%rdx), %ymm3
  vmovdqu %ymm0, (%rdi)
  vmovdqu %ymm1, 32(%rdi)
  vmovdqu %ymm2, -64(%rdi,%rdx)
  vmovdqu %ymm3, -32(%rdi,%rdx)
faultline_odp_copy_to_128_commit:
  vzeroupper
  movq %rdx, %rax
  ret
20:
)" FAULTLINE_AVX_GUARD("long") R"(
  xorl %eax, %eax
  leaq -128(%rdx), %rcx
  vmovdqu (%rsi,%rcx), %ymm4
  vmovdqu 32(%rsi,%rcx), %ymm5
  vmovdqu 64(%rsi,%rcx), %ymm6
  vmovdqu 96(%rsi,%rcx), %ymm7
  .p2align 4
21:
  vmovdqu (%rsi,%rax), %ymm0
  vmovdqu 32(%rsi,%rax), %ymm1
  vmovdqu 64(%rsi,%rax), %ymm2
  vmovdqu 96(%rsi,%rax), %ymm3
  vmovdqu %ymm0, (%rdi,%rax)
  vmovdqu %ymm1, 32(%rdi,%rax)
  vmovdqu %ymm2, 64(%rdi,%rax)
  vmovdqu %ymm3, 96(%rdi,%rax)
  addq $128, %rax
  cmpq %rcx, %rax
  jb 21b
  vmovdqu %ymm4, (%rdi,%rcx)
  vmovdqu %ymm5, 32(%rdi,%rcx)
  vmovdqu %ymm6, 64(%rdi,%rcx)
  vmovdqu %ymm7, 96(%rdi,%rcx)
faultline_odp_copy_long_commit:
  vzeroupper
  movq %rdx, %rax
  ret
30:
  je 35f
  cmpq $16, %rdx
  jb 40f
)" FAULTLINE_AVX_GUARD("to_31") R"(
  vmovdqu (%rsi), %xmm0
  vmovdqu -16(%rsi,%rdx), %xmm1
  cmpq $16, %rdx
  je 31f
  vmovdqu %xmm0, (%rdi)
31:
  vmovdqu %xmm1, -16(%rdi,%rdx)
faultline_odp_copy_to_31_commit:
  movq %rdx, %rax
  ret
35:
)" FAULTLINE_AVX_GUARD("32") R"(
  vmovdqu (%rsi), %ymm0
  vmovdqu %ymm0, (%rdi)
faultline_odp_copy_32_commit:
  vzeroupper
  movq %rdx, %rax
  ret
40:
  cmpq $8, %rdx
  jb 50f
)" FAULTLINE_AVX_GUARD("to_15") R"(
  movq (%rsi), %r9
  movq -8(%rsi,%rdx), %r8
  cmpq $8, %rdx
  je 41f
  movq %r9, (%rdi)
41:
  movq %r8, -8(%rdi,%rdx)
faultline_odp_copy_to_15_commit:
  movq %rdx, %rax
  ret
50:
  cmpq $4, %rdx
  jb 60f
)" FAULTLINE_AVX_GUARD("to_7") R"(
  movl (%rsi), %r9d
  movl -4(%rsi,%rdx), %r8d
  cmpq $4, %rdx
  je 51f
  movl %r9d, (%rdi)
51:
  movl %r8d, -4(%rdi,%rdx)
faultline_odp_copy_to_7_commit:
  movq %rdx, %rax
  ret
60:
  cmpq $2, %rdx
  jb 70f
)" FAULTLINE_AVX_GUARD("to_3") R"(
  movzbl (%rsi), %r9d
  movzwl -2(%rsi,%rdx), %r8d
  cmpq $2, %rdx
  je 61f
  movb %r9b, (%rdi)
61:
  movw %r8w, -2(%rdi,%rdx)
faultline_odp_copy_to_3_commit:
  movq %rdx, %rax
  ret
70:
  testq %rdx, %rdx
  jz 71f
)" FAULTLINE_AVX_GUARD("1") R"(
  movzbl (%rsi), %r9d
  movb %r9b, (%rdi)
faultline_odp_copy_1_commit:
71:
  movq %rdx, %rax
  ret
faultline_odp_guarded_copy_avx2_end:
  .cfi_endproc
  .size faultline_odp_guarded_copy_avx2, . - faultline_odp_guarded_copy_avx2
  .popsection
)");

extern "C" {
__attribute__((visibility("hidden"))) size_t faultline_odp_guarded_copy_movsb(
    void*, const void*, size_t, const faultline::odp::CopyTicket*);
__attribute__((visibility("hidden"))) size_t faultline_odp_guarded_copy_avx2(
    void*, const void*, size_t, const faultline::odp::CopyTicket*);
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_bytes_commit[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_guarded_copy_avx2_end[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_revoked_fault[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_revoked_avx_fault[];
__attribute__((visibility("hidden"))) size_t faultline_odp_copy_movsb(void*, const void*, size_t);
__attribute__((visibility("hidden"))) size_t faultline_odp_copy_avx2(void*, const void*, size_t);
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_movsb_begin[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_movsb_end[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_movsb_fixup[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_avx2_begin[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_avx2_end[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_avx2_fixup[];
}

namespace faultline::odp {
namespace {

using Copy = size_t (*)(void*, const void*, size_t);

const Copy kCopy =
    copy_routine_supported(CopyRoutine::avx2) ? faultline_odp_copy_avx2 : faultline_odp_copy_movsb;

using GuardedCopy = size_t (*)(void*, const void*, size_t, const CopyTicket*);

const GuardedCopy kGuardedCopy = copy_routine_supported(CopyRoutine::avx2) ? faultline_odp_guarded_copy_avx2
                                                                           : faultline_odp_guarded_copy_movsb;

// The guarded routines' entries are for threads without an rseq area; with one their faults match
// restart_ranges().
const std::array<FaultRange, 4> kCopyRanges{
    FaultRange{address_of(faultline_odp_copy_movsb_begin), address_of(faultline_odp_copy_movsb_end),
               address_of(faultline_odp_copy_movsb_fixup)},
    FaultRange{address_of(faultline_odp_copy_avx2_begin), address_of(faultline_odp_copy_avx2_end),
               address_of(faultline_odp_copy_avx2_fixup)},
    FaultRange{reinterpret_cast<uintptr_t>(faultline_odp_guarded_copy_movsb),
               address_of(faultline_odp_copy_bytes_commit), address_of(faultline_odp_revoked_fault)},
    FaultRange{reinterpret_cast<uintptr_t>(faultline_odp_guarded_copy_avx2),
               address_of(faultline_odp_guarded_copy_avx2_end), address_of(faultline_odp_revoked_avx_fault)}};

}  // namespace

size_t tolerant_copy(void* to, const void* from, size_t length_bytes) {
  return kCopy(to, from, length_bytes);
}

size_t guarded_copy(void* to, const void* from, size_t length_bytes, const CopyTicket& ticket) {
  return kGuardedCopy(to, from, length_bytes, &ticket);
}

size_t guarded_copy_with(CopyRoutine routine, void* to, const void* from, size_t length_bytes,
                         const CopyTicket& ticket) {
  return routine == CopyRoutine::avx2 ? faultline_odp_guarded_copy_avx2(to, from, length_bytes, &ticket)
                                      : faultline_odp_guarded_copy_movsb(to, from, length_bytes, &ticket);
}

bool copy_routine_supported(CopyRoutine routine) {
  __builtin_cpu_init();
  return routine == CopyRoutine::rep_movsb ||
         (routine == CopyRoutine::avx2 && __builtin_cpu_supports("avx2"));
}

size_t tolerant_copy_with(CopyRoutine routine, void* to, const void* from, size_t length_bytes) {
  switch (routine) {
    case CopyRoutine::rep_movsb:
      return faultline_odp_copy_movsb(to, from, length_bytes);
    case CopyRoutine::avx2:
      return faultline_odp_copy_avx2(to, from, length_bytes);
    case CopyRoutine::pairs:
      break;
  }
  return 0;
}

std::span<const FaultRange> tolerant_copy_ranges() {
  return kCopyRanges;
}

}  // namespace faultline::odp
