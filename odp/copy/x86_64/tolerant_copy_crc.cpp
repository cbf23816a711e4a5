// SPDX-License-Identifier: BSD-3-Clause
// Computes the CRC by folding (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction", Intel 2009): the bytes read so far are a polynomial that is shifted over the next block by
// multiplication with x^distance mod P.
#include "odp/copy/tolerant_copy_crc.hpp"

#include <algorithm>
#include <array>

#include <isa-l/crc.h>

#include "odp/copy/copy_in_chunks.hpp"
#include "odp/copy/restartable_copy.hpp"
#include "odp/copy/tolerant_copy.hpp"
#include "odp/copy/x86_64/guard.hpp"

namespace faultline::odp {
namespace {

/// Returns x^power mod P, in the reflected form that a carry-less multiplication of reflected operands
/// needs: shifted left by one bit.
constexpr uint64_t power_of_x(unsigned power) {
  constexpr uint32_t kPolynomial = 0x04c11db7;
  uint32_t rest = 1;
  for (unsigned i = 0; i < power; ++i) rest = rest << 1 ^ ((rest & 0x80000000U) != 0 ? kPolynomial : 0);
  uint64_t reflected = 0;
  for (unsigned bit = 0; bit < 32; ++bit) reflected |= uint64_t{rest >> bit & 1} << (32 - bit);
  return reflected;
}

/// Multipliers that shift 128 bits by a distance: for the first eight bytes, and for the last.
struct Fold {
  uint64_t first;
  uint64_t last;
};
constexpr Fold fold_by(unsigned bits) {
  return {power_of_x(bits + 32), power_of_x(bits - 32)};
}
static_assert(fold_by(512).first == 0x154442bd4 && fold_by(512).last == 0x1c6e41596, "as published");

/// The routines below depend on this layout.
struct alignas(64) FoldConstants {
  std::array<Fold, 4> by_2048_bits{fold_by(2048), fold_by(2048), fold_by(2048), fold_by(2048)};
  std::array<Fold, 4> by_1536_bits{fold_by(1536), fold_by(1536), fold_by(1536), fold_by(1536)};
  std::array<Fold, 4> by_1024_bits{fold_by(1024), fold_by(1024), fold_by(1024), fold_by(1024)};
  std::array<Fold, 4> by_512_bits{fold_by(512), fold_by(512), fold_by(512), fold_by(512)};
  std::array<Fold, 3> lanes_to_last{fold_by(384), fold_by(256), fold_by(128)};
  Fold nothing{0, 0};
  uint64_t by_64_bits = power_of_x(64);  // 128 bits are down to 96 by then
  uint64_t unused = 0;
  Fold barrett{0x1db710641, 0x1f7011641};  ///< P, and x^64 / P
  std::array<uint32_t, 4> low_words{~0U, 0, ~0U, 0};
};

constexpr FoldConstants kFolds;

}  // namespace
}  // namespace faultline::odp

// System V ABI: rdi = to, rsi = from, rdx = length, a positive multiple of 64 (avx512: at least 256), rcx =
// the CRC's address, r8 = constants; rax = bytes certainly copied. rax is current at every instruction that
// may fault. No stack is used: the fixup can simply return.
asm(R"(
  .pushsection .text
  .p2align 5
  .globl faultline_odp_guarded_copy_crc_pclmul
  .hidden faultline_odp_guarded_copy_crc_pclmul
  .type faultline_odp_guarded_copy_crc_pclmul, @function
faultline_odp_guarded_copy_crc_pclmul:
  .cfi_startproc
  endbr64
)" FAULTLINE_GUARD("faultline_odp_guarded_copy_crc_pclmul", "%r9", "%r10", "faultline_odp_revoked") R"(
  .cfi_endproc
  .size faultline_odp_guarded_copy_crc_pclmul, . - faultline_odp_guarded_copy_crc_pclmul
  # No alignment here: the sequence runs on.
  .globl faultline_odp_copy_crc_pclmul
  .hidden faultline_odp_copy_crc_pclmul
  .type faultline_odp_copy_crc_pclmul, @function
faultline_odp_copy_crc_pclmul:
  .cfi_startproc
  endbr64
  xorl %eax, %eax
  movl (%rcx), %r9d
  notl %r9d
  movd %r9d, %xmm8
  movdqa 192(%r8), %xmm9
faultline_odp_copy_crc_pclmul_begin:
  movdqu (%rsi), %xmm0
  movdqu 16(%rsi), %xmm1
  movdqu 32(%rsi), %xmm2
  movdqu 48(%rsi), %xmm3
  movdqu %xmm0, (%rdi)
  movdqu %xmm1, 16(%rdi)
  movdqu %xmm2, 32(%rdi)
  movdqu %xmm3, 48(%rdi)
  pxor %xmm8, %xmm0
  movl $64, %eax
  cmpq %rdx, %rax
  jae 20f
  .p2align 4
10:
  movdqu (%rsi,%rax), %xmm4
  movdqu 16(%rsi,%rax), %xmm5
  movdqu 32(%rsi,%rax), %xmm6
  movdqu 48(%rsi,%rax), %xmm7
  movdqu %xmm4, (%rdi,%rax)
  movdqu %xmm5, 16(%rdi,%rax)
  movdqu %xmm6, 32(%rdi,%rax)
  movdqu %xmm7, 48(%rdi,%rax)
  movdqa %xmm0, %xmm10
  movdqa %xmm1, %xmm11
  movdqa %xmm2, %xmm12
  movdqa %xmm3, %xmm13
  pclmulqdq $0x00, %xmm9, %xmm10
  pclmulqdq $0x11, %xmm9, %xmm0
  pclmulqdq $0x00, %xmm9, %xmm11
  pclmulqdq $0x11, %xmm9, %xmm1
  pclmulqdq $0x00, %xmm9, %xmm12
  pclmulqdq $0x11, %xmm9, %xmm2
  pclmulqdq $0x00, %xmm9, %xmm13
  pclmulqdq $0x11, %xmm9, %xmm3
  pxor %xmm4, %xmm10
  pxor %xmm5, %xmm11
  pxor %xmm6, %xmm12
  pxor %xmm7, %xmm13
  pxor %xmm10, %xmm0
  pxor %xmm11, %xmm1
  pxor %xmm12, %xmm2
  pxor %xmm13, %xmm3
  addq $64, %rax
  cmpq %rdx, %rax
  jb 10b
faultline_odp_copy_crc_pclmul_end:
faultline_odp_guarded_copy_crc_pclmul_commit:
20:
  movdqa %xmm0, %xmm4
  movdqa %xmm1, %xmm5
  movdqa %xmm2, %xmm6
  pclmulqdq $0x00, 256(%r8), %xmm4
  pclmulqdq $0x11, 256(%r8), %xmm0
  pclmulqdq $0x00, 272(%r8), %xmm5
  pclmulqdq $0x11, 272(%r8), %xmm1
  pclmulqdq $0x00, 288(%r8), %xmm6
  pclmulqdq $0x11, 288(%r8), %xmm2
  pxor %xmm4, %xmm0
  pxor %xmm5, %xmm1
  pxor %xmm6, %xmm2
  pxor %xmm3, %xmm0
  pxor %xmm1, %xmm2
  pxor %xmm2, %xmm0
  # 128 bits to 32: twice by a part of them, then Barrett's reduction.
80:
  movdqa %xmm0, %xmm1
  pclmulqdq $0x10, 288(%r8), %xmm0
  psrldq $8, %xmm1
  pxor %xmm1, %xmm0
  movdqa 352(%r8), %xmm3
  movdqa %xmm0, %xmm1
  psrldq $4, %xmm1
  pand %xmm3, %xmm0
  pclmulqdq $0x00, 320(%r8), %xmm0
  pxor %xmm1, %xmm0
  movdqa %xmm0, %xmm1
  pand %xmm3, %xmm0
  pclmulqdq $0x10, 336(%r8), %xmm0
  pand %xmm3, %xmm0
  pclmulqdq $0x00, 336(%r8), %xmm0
  pxor %xmm1, %xmm0
  pextrd $1, %xmm0, %r9d
  notl %r9d
  movl %r9d, (%rcx)
  ret
faultline_odp_copy_crc_pclmul_fixup:
  ret
  .cfi_endproc
  .size faultline_odp_copy_crc_pclmul, . - faultline_odp_copy_crc_pclmul

  .p2align 5
  .globl faultline_odp_guarded_copy_crc_avx512
  .hidden faultline_odp_guarded_copy_crc_avx512
  .type faultline_odp_guarded_copy_crc_avx512, @function
faultline_odp_guarded_copy_crc_avx512:
  .cfi_startproc
  endbr64
)" FAULTLINE_GUARD("faultline_odp_guarded_copy_crc_avx512", "%r9", "%r10", "faultline_odp_revoked_avx") R"(
  .cfi_endproc
  .size faultline_odp_guarded_copy_crc_avx512, . - faultline_odp_guarded_copy_crc_avx512
  # No alignment here: the sequence runs on.
  .globl faultline_odp_copy_crc_avx512
  .hidden faultline_odp_copy_crc_avx512
  .type faultline_odp_copy_crc_avx512, @function
faultline_odp_copy_crc_avx512:
  .cfi_startproc
  endbr64
  xorl %eax, %eax
  movl (%rcx), %r9d
  notl %r9d
  vmovd %r9d, %xmm8
  vmovdqa64 (%r8), %zmm9
faultline_odp_copy_crc_avx512_begin:
  vmovdqu64 (%rsi), %zmm0
  vmovdqu64 64(%rsi), %zmm1
  vmovdqu64 128(%rsi), %zmm2
  vmovdqu64 192(%rsi), %zmm3
  vmovdqu64 %zmm0, (%rdi)
  vmovdqu64 %zmm1, 64(%rdi)
  vmovdqu64 %zmm2, 128(%rdi)
  vmovdqu64 %zmm3, 192(%rdi)
  vpxorq %zmm8, %zmm0, %zmm0
  movl $256, %eax
  leaq -256(%rdx), %r10
  cmpq %r10, %rax
  ja 20f
  .p2align 4
10:
  vmovdqu64 (%rsi,%rax), %zmm4
  vmovdqu64 64(%rsi,%rax), %zmm5
  vmovdqu64 128(%rsi,%rax), %zmm6
  vmovdqu64 192(%rsi,%rax), %zmm7
  vpclmulqdq $0x00, %zmm9, %zmm0, %zmm10
  vpclmulqdq $0x11, %zmm9, %zmm0, %zmm0
  vpclmulqdq $0x00, %zmm9, %zmm1, %zmm11
  vpclmulqdq $0x11, %zmm9, %zmm1, %zmm1
  vpclmulqdq $0x00, %zmm9, %zmm2, %zmm12
  vpclmulqdq $0x11, %zmm9, %zmm2, %zmm2
  vpclmulqdq $0x00, %zmm9, %zmm3, %zmm13
  vpclmulqdq $0x11, %zmm9, %zmm3, %zmm3
  vmovdqu64 %zmm4, (%rdi,%rax)
  vmovdqu64 %zmm5, 64(%rdi,%rax)
  vmovdqu64 %zmm6, 128(%rdi,%rax)
  vmovdqu64 %zmm7, 192(%rdi,%rax)
  vpternlogq $0x96, %zmm10, %zmm4, %zmm0
  vpternlogq $0x96, %zmm11, %zmm5, %zmm1
  vpternlogq $0x96, %zmm12, %zmm6, %zmm2
  vpternlogq $0x96, %zmm13, %zmm7, %zmm3
  addq $256, %rax
  cmpq %r10, %rax
  jbe 10b
  # Four sums to one.
20:
  vmovdqa64 64(%r8), %zmm4
  vmovdqa64 128(%r8), %zmm5
  vmovdqa64 192(%r8), %zmm9
  vpclmulqdq $0x00, %zmm4, %zmm0, %zmm10
  vpclmulqdq $0x11, %zmm4, %zmm0, %zmm0
  vpclmulqdq $0x00, %zmm5, %zmm1, %zmm11
  vpclmulqdq $0x11, %zmm5, %zmm1, %zmm1
  vpclmulqdq $0x00, %zmm9, %zmm2, %zmm12
  vpclmulqdq $0x11, %zmm9, %zmm2, %zmm2
  vpternlogq $0x96, %zmm10, %zmm3, %zmm0
  vpternlogq $0x96, %zmm11, %zmm12, %zmm1
  vpternlogq $0x96, %zmm1, %zmm2, %zmm0
  cmpq %rdx, %rax
  jae 40f
30:
  vmovdqu64 (%rsi,%rax), %zmm4
  vmovdqu64 %zmm4, (%rdi,%rax)
  vpclmulqdq $0x00, %zmm9, %zmm0, %zmm10
  vpclmulqdq $0x11, %zmm9, %zmm0, %zmm0
  vpternlogq $0x96, %zmm10, %zmm4, %zmm0
  addq $64, %rax
  cmpq %rdx, %rax
  jb 30b
faultline_odp_copy_crc_avx512_end:
faultline_odp_guarded_copy_crc_avx512_commit:
40:
  vmovdqa64 256(%r8), %zmm4
  vextracti32x4 $3, %zmm0, %xmm5
  vpclmulqdq $0x00, %zmm4, %zmm0, %zmm1
  vpclmulqdq $0x11, %zmm4, %zmm0, %zmm0
  vpxorq %zmm1, %zmm0, %zmm0
  vextracti64x4 $1, %zmm0, %ymm1
  vpxor %ymm1, %ymm0, %ymm0
  vextracti128 $1, %ymm0, %xmm1
  vpternlogq $0x96, %xmm5, %xmm1, %xmm0
  vzeroupper
  jmp 80b
faultline_odp_copy_crc_avx512_fixup:
  vzeroupper
  ret
  .cfi_endproc
  .size faultline_odp_copy_crc_avx512, . - faultline_odp_copy_crc_avx512

  # As above, but the sum is of as many bytes at r9; rdx = a positive multiple of 256.
  .p2align 5
  .globl faultline_odp_guarded_copy_beside_avx512
  .hidden faultline_odp_guarded_copy_beside_avx512
  .type faultline_odp_guarded_copy_beside_avx512, @function
faultline_odp_guarded_copy_beside_avx512:
  .cfi_startproc
  endbr64
  movq 8(%rsp), %r11
)" FAULTLINE_GUARD("faultline_odp_guarded_copy_beside_avx512", "%r11", "%r10",
                   "faultline_odp_revoked_avx") R"(
  .cfi_endproc
  .size faultline_odp_guarded_copy_beside_avx512, . - faultline_odp_guarded_copy_beside_avx512
  # No alignment here: the sequence runs on.
  .globl faultline_odp_copy_beside_avx512
  .hidden faultline_odp_copy_beside_avx512
  .type faultline_odp_copy_beside_avx512, @function
faultline_odp_copy_beside_avx512:
  .cfi_startproc
  endbr64
  xorl %eax, %eax
  movl (%rcx), %r10d
  notl %r10d
  vmovd %r10d, %xmm8
  vmovdqa64 (%r8), %zmm9
  vpxorq (%r9), %zmm8, %zmm0
  vmovdqu64 64(%r9), %zmm1
  vmovdqu64 128(%r9), %zmm2
  vmovdqu64 192(%r9), %zmm3
  leaq -256(%rdx), %r11
faultline_odp_copy_beside_avx512_begin:
  cmpq %r11, %rax
  jae 12f
  .p2align 4
10:
  vmovdqu64 (%rsi,%rax), %zmm4
  vmovdqu64 64(%rsi,%rax), %zmm5
  vmovdqu64 128(%rsi,%rax), %zmm6
  vmovdqu64 192(%rsi,%rax), %zmm7
  vpclmulqdq $0x00, %zmm9, %zmm0, %zmm10
  vpclmulqdq $0x11, %zmm9, %zmm0, %zmm0
  vpclmulqdq $0x00, %zmm9, %zmm1, %zmm11
  vpclmulqdq $0x11, %zmm9, %zmm1, %zmm1
  vpclmulqdq $0x00, %zmm9, %zmm2, %zmm12
  vpclmulqdq $0x11, %zmm9, %zmm2, %zmm2
  vpclmulqdq $0x00, %zmm9, %zmm3, %zmm13
  vpclmulqdq $0x11, %zmm9, %zmm3, %zmm3
  vmovdqu64 %zmm4, (%rdi,%rax)
  vmovdqu64 %zmm5, 64(%rdi,%rax)
  vmovdqu64 %zmm6, 128(%rdi,%rax)
  vmovdqu64 %zmm7, 192(%rdi,%rax)
  addq $256, %rax
  vpternlogq $0x96, (%r9,%rax), %zmm10, %zmm0
  vpternlogq $0x96, 64(%r9,%rax), %zmm11, %zmm1
  vpternlogq $0x96, 128(%r9,%rax), %zmm12, %zmm2
  vpternlogq $0x96, 192(%r9,%rax), %zmm13, %zmm3
  cmpq %r11, %rax
  jb 10b
  # The last block is stored by the last instructions, where the sequence commits.
12:
  vmovdqu64 (%rsi,%rax), %zmm4
  vmovdqu64 64(%rsi,%rax), %zmm5
  vmovdqu64 128(%rsi,%rax), %zmm6
  vmovdqu64 192(%rsi,%rax), %zmm7
  vmovdqu64 %zmm4, (%rdi,%rax)
  vmovdqu64 %zmm5, 64(%rdi,%rax)
  vmovdqu64 %zmm6, 128(%rdi,%rax)
  vmovdqu64 %zmm7, 192(%rdi,%rax)
faultline_odp_copy_beside_avx512_end:
faultline_odp_guarded_copy_beside_avx512_commit:
  movq %rdx, %rax
  jmp 20b
faultline_odp_copy_beside_avx512_fixup:
  vzeroupper
  ret
  .cfi_endproc
  .size faultline_odp_copy_beside_avx512, . - faultline_odp_copy_beside_avx512
  .popsection
)");

extern "C" {
using CopyCrcFunction = size_t(void*, const void*, size_t, uint32_t*, const void*);
__attribute__((visibility("hidden"))) CopyCrcFunction faultline_odp_copy_crc_pclmul;
__attribute__((visibility("hidden"))) CopyCrcFunction faultline_odp_copy_crc_avx512;
__attribute__((visibility("hidden"))) size_t faultline_odp_copy_beside_avx512(void* to, const void* from,
                                                                              size_t length_bytes,
                                                                              uint32_t* crc,
                                                                              const void* constants,
                                                                              const uint8_t* summed);
using GuardedCopyCrcFunction = size_t(void*, const void*, size_t, uint32_t*, const void*,
                                      const faultline::odp::CopyTicket*);
__attribute__((visibility("hidden"))) GuardedCopyCrcFunction faultline_odp_guarded_copy_crc_pclmul;
__attribute__((visibility("hidden"))) GuardedCopyCrcFunction faultline_odp_guarded_copy_crc_avx512;
__attribute__((visibility("hidden"))) size_t faultline_odp_guarded_copy_beside_avx512(
    void* to, const void* from, size_t length_bytes, uint32_t* crc, const void* constants,
    const uint8_t* summed, const faultline::odp::CopyTicket* ticket);
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_beside_avx512_begin[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_beside_avx512_end[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_beside_avx512_fixup[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_crc_pclmul_begin[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_crc_pclmul_end[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_crc_pclmul_fixup[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_crc_avx512_begin[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_crc_avx512_end[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_crc_avx512_fixup[];
}

namespace faultline::odp {
namespace {

constexpr size_t kFoldedBytes = 64;  ///< the fused routines take whole multiples
constexpr size_t kFusedBytes =
    256;  ///< shorter copies are faster in two steps, and avx512 requires at least this many
constexpr size_t kBesideBytes = 256;  ///< likewise, for the copy with a CRC of other bytes

const std::array<FaultRange, 3> kCopyCrcRanges{
    FaultRange{address_of(faultline_odp_copy_crc_pclmul_begin), address_of(faultline_odp_copy_crc_pclmul_end),
               address_of(faultline_odp_copy_crc_pclmul_fixup)},
    FaultRange{address_of(faultline_odp_copy_crc_avx512_begin), address_of(faultline_odp_copy_crc_avx512_end),
               address_of(faultline_odp_copy_crc_avx512_fixup)},
    FaultRange{address_of(faultline_odp_copy_beside_avx512_begin),
               address_of(faultline_odp_copy_beside_avx512_end),
               address_of(faultline_odp_copy_beside_avx512_fixup)}};

CopyCrcRoutine best_routine() {
  for (const CopyCrcRoutine routine : {CopyCrcRoutine::avx512, CopyCrcRoutine::pclmul})
    if (copy_crc_routine_supported(routine)) return routine;
  return CopyCrcRoutine::chunks;
}
const CopyCrcRoutine kRoutine = best_routine();

/// Copies the fused part by fused(to, from, length_bytes), the rest in chunks by copy(to, from,
/// length_bytes).
template <typename Fused, typename Copy>
size_t copy_with_sum(CopyCrcRoutine routine, void* to, const void* from, size_t length_bytes, uint32_t& crc,
                     Fused fused_copy, Copy copy) {
  auto* out = static_cast<uint8_t*>(to);
  const auto* in = static_cast<const uint8_t*>(from);
  size_t fused = 0;
  if (length_bytes >= kFusedBytes && routine != CopyCrcRoutine::chunks) {
    const size_t whole = length_bytes - length_bytes % kFoldedBytes;
    fused = fused_copy(out, in, whole);
    if (fused != whole || fused == length_bytes) return fused;
  }
  const size_t rest = copy_in_chunks(out + fused, in + fused, length_bytes - fused, crc, copy);
  return rest == kRevoked ? kRevoked : fused + rest;
}

/// The same with the CRC of other bytes: beside(to, from, length_bytes, crc).
template <typename Beside, typename Copy>
size_t copy_beside_sum(CopyCrcRoutine routine, void* to, const void* from, size_t length_bytes,
                       CrcBeside& sum, Beside beside, Copy copy) {
  const size_t both = std::min(length_bytes, sum.bytes.size());
  const size_t whole = both - both % kBesideBytes;
  // The narrower routines are limited by their multiplications many times over, so a combined pass gains
  // nothing.
  if (routine != CopyCrcRoutine::avx512 || whole == 0) return copy(to, from, length_bytes);
  uint32_t crc = sum.crc;
  const size_t copied = beside(to, from, whole, &crc);
  if (copied != whole) return copied;
  const std::span<const uint8_t> rest = sum.bytes.subspan(whole);
  sum.crc = rest.empty() ? crc : crc32_gzip_refl(crc, rest.data(), rest.size());
  sum.done = true;
  if (whole == length_bytes) return whole;
  const size_t tail = copy(static_cast<uint8_t*>(to) + whole, static_cast<const uint8_t*>(from) + whole,
                           length_bytes - whole);
  return tail == kRevoked ? kRevoked : whole + tail;
}

}  // namespace

size_t tolerant_copy_crc(void* to, const void* from, size_t length_bytes, uint32_t& crc) {
  return tolerant_copy_crc_with(kRoutine, to, from, length_bytes, crc);
}

CopyCrcRoutine copy_crc_routine() {
  return kRoutine;
}

bool copy_crc_routine_supported(CopyCrcRoutine routine) {
  __builtin_cpu_init();
  switch (routine) {
    case CopyCrcRoutine::chunks:
      return true;
    case CopyCrcRoutine::pclmul:
      return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    case CopyCrcRoutine::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
  }
  return false;
}

size_t tolerant_copy_crc_with(CopyCrcRoutine routine, void* to, const void* from, size_t length_bytes,
                              uint32_t& crc) {
  CopyCrcFunction* const function =
      routine == CopyCrcRoutine::avx512 ? faultline_odp_copy_crc_avx512 : faultline_odp_copy_crc_pclmul;
  const auto fused = [&](void* out, const void* in, size_t bytes) {
    // The guarded form's sequence covers this body too, and the thread's rseq area may still refer to it.
    for (;;)
      if (const size_t copied = function(out, in, bytes, &crc, &kFolds); copied != kRevoked) return copied;
  };
  return copy_with_sum(routine, to, from, length_bytes, crc, fused, tolerant_copy);
}

size_t guarded_copy_crc(void* to, const void* from, size_t length_bytes, uint32_t& crc,
                        const CopyTicket& ticket) {
  GuardedCopyCrcFunction* const function = kRoutine == CopyCrcRoutine::avx512
                                               ? faultline_odp_guarded_copy_crc_avx512
                                               : faultline_odp_guarded_copy_crc_pclmul;
  // A repeated copy must begin with the same CRC.
  uint32_t sum = crc;
  const size_t copied = copy_with_sum(
      kRoutine, to, from, length_bytes, sum,
      [&](void* out, const void* in, size_t bytes) {
        return function(out, in, bytes, &sum, &kFolds, &ticket);
      },
      [&](void* out, const void* in, size_t bytes) { return guarded_copy(out, in, bytes, ticket); });
  if (copied == length_bytes) crc = sum;
  return copied;
}

size_t tolerant_copy_beside(void* to, const void* from, size_t length_bytes, CrcBeside& sum) {
  return tolerant_copy_beside_with(kRoutine, to, from, length_bytes, sum);
}

size_t tolerant_copy_beside_with(CopyCrcRoutine routine, void* to, const void* from, size_t length_bytes,
                                 CrcBeside& sum) {
  const auto beside = [&](void* out, const void* in, size_t bytes, uint32_t* crc) {
    for (;;) {
      const size_t copied = faultline_odp_copy_beside_avx512(out, in, bytes, crc, &kFolds, sum.bytes.data());
      if (copied != kRevoked) return copied;
    }
  };
  return copy_beside_sum(routine, to, from, length_bytes, sum, beside, tolerant_copy);
}

size_t guarded_copy_beside(void* to, const void* from, size_t length_bytes, CrcBeside& sum,
                           const CopyTicket& ticket) {
  const auto beside = [&](void* out, const void* in, size_t bytes, uint32_t* crc) {
    return faultline_odp_guarded_copy_beside_avx512(out, in, bytes, crc, &kFolds, sum.bytes.data(), &ticket);
  };
  const auto copy = [&](void* out, const void* in, size_t bytes) {
    return guarded_copy(out, in, bytes, ticket);
  };
  return copy_beside_sum(kRoutine, to, from, length_bytes, sum, beside, copy);
}

std::span<const FaultRange> tolerant_copy_crc_ranges() {
  return kCopyCrcRanges;
}

}  // namespace faultline::odp
