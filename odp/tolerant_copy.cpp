// SPDX-License-Identifier: BSD-3-Clause
#include "odp/tolerant_copy.hpp"

#include <array>

// System V ABI: rdi = to, rsi = from, rdx = length; rax = bytes surely copied, kept current at every
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

extern "C" {
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

uintptr_t address_of(const char* label) {
  return reinterpret_cast<uintptr_t>(label);
}

const std::array<FaultRange, 2> kRanges{
    FaultRange{address_of(faultline_odp_copy_movsb_begin), address_of(faultline_odp_copy_movsb_end),
               address_of(faultline_odp_copy_movsb_fixup)},
    FaultRange{address_of(faultline_odp_copy_avx2_begin), address_of(faultline_odp_copy_avx2_end),
               address_of(faultline_odp_copy_avx2_fixup)}};

}  // namespace

size_t tolerant_copy(void* to, const void* from, size_t length_bytes) {
  return kCopy(to, from, length_bytes);
}

bool copy_routine_supported(CopyRoutine routine) {
  __builtin_cpu_init();
  return routine == CopyRoutine::rep_movsb || __builtin_cpu_supports("avx2");
}

size_t tolerant_copy_with(CopyRoutine routine, void* to, const void* from, size_t length_bytes) {
  switch (routine) {
    case CopyRoutine::rep_movsb:
      return faultline_odp_copy_movsb(to, from, length_bytes);
    case CopyRoutine::avx2:
      return faultline_odp_copy_avx2(to, from, length_bytes);
  }
  return 0;
}

std::span<const FaultRange> tolerant_copy_ranges() {
  return kRanges;
}

}  // namespace faultline::odp
