// SPDX-License-Identifier: BSD-3-Clause
#include "odp/copy/tolerant_copy.hpp"

#include <array>

#include "odp/copy/aarch64/guard.hpp"

// AAPCS64: x0 = to, x1 = from, x2 = length; x3 = bytes certainly copied, current at every instruction that
// may fault. No stack is used: the fixup can simply return.
// Other CPUs may see plain stores in any order. A program that polls the last byte must find the others
// there, also those of the message's packets before. So DMB ISHST is before the store with the last byte.
asm("  .pushsection .text\n" FAULTLINE_FUNCTION("faultline_odp_copy_pairs") R"(
  mov x3, #0
  add x4, x1, x2
  add x5, x0, x2
faultline_odp_copy_pairs_begin:
  cmp x2, #16
  b.lo 30f
  cmp x2, #32
  b.hi 10f
  ldr q0, [x1]
  ldr q1, [x4, #-16]
  str q0, [x0]
  dmb ishst
  str q1, [x5, #-16]
  b 90f
10:
  cmp x2, #64
  b.hi 20f
  ldp q0, q1, [x1]
  ldp q2, q3, [x4, #-32]
  stp q0, q1, [x0]
  dmb ishst
  stp q2, q3, [x5, #-32]
  b 90f
20:
  ldp q4, q5, [x4, #-64]
  ldp q6, q7, [x4, #-32]
  sub x6, x2, #64
21:
  ldp q0, q1, [x1]
  ldp q2, q3, [x1, #32]
  stp q0, q1, [x0]
  stp q2, q3, [x0, #32]
  add x1, x1, #64
  add x0, x0, #64
  add x3, x3, #64
  cmp x3, x6
  b.lo 21b
  stp q4, q5, [x5, #-64]
  dmb ishst
  stp q6, q7, [x5, #-32]
  b 90f
30:
  cmp x2, #8
  b.lo 40f
  ldr x6, [x1]
  ldr x7, [x4, #-8]
  str x6, [x0]
  dmb ishst
  str x7, [x5, #-8]
  b 90f
40:
  cmp x2, #4
  b.lo 50f
  ldr w6, [x1]
  ldr w7, [x4, #-4]
  str w6, [x0]
  dmb ishst
  str w7, [x5, #-4]
  b 90f
50:
  cbz x2, 90f
  ldrb w6, [x1]
  cmp x2, #2
  b.lo 51f
  ldrh w7, [x4, #-2]
  strb w6, [x0]
  dmb ishst
  strh w7, [x5, #-2]
  b 90f
51:
  dmb ishst
  strb w6, [x0]
faultline_odp_copy_pairs_end:
90:
  mov x0, x2
  ret
faultline_odp_copy_pairs_fixup:
  mov x0, x3
  ret
)" FAULTLINE_FUNCTION_END("faultline_odp_copy_pairs") "  .popsection\n");

// The guarded form (restartable_copy.hpp): x3 = the ticket. Each length class has its own sequence, which
// commits at the last store. A repeated copy must not store bytes that a program, which polls the last byte,
// may have seen and replaced.
// No store before the last one contains the last byte; a value of 1, 2, 4 or 8 bytes is stored at once, and
// one of 16 or 32 bytes by one instruction.
#define FAULTLINE_COPY_GUARD(NAME) FAULTLINE_GUARD("faultline_odp_copy_" NAME, "x3")
asm("  .pushsection .text\n" FAULTLINE_FUNCTION("faultline_odp_guarded_copy_pairs") R"(
  add x4, x1, x2
  add x5, x0, x2
  cmp x2, #32
  b.ls 30f
  cmp x2, #64
  b.hi 20f
)" FAULTLINE_COPY_GUARD("to_64") R"(
  ldp q0, q1, [x1]
  ldp q2, q3, [x4, #-32]
  stp q0, q1, [x0]
  dmb ishst
  stp q2, q3, [x5, #-32]
faultline_odp_copy_to_64_commit:
  mov x0, x2
  ret
20:
)" FAULTLINE_COPY_GUARD("long") R"(
  ldp q4, q5, [x4, #-64]
  ldp q6, q7, [x4, #-32]
  sub x6, x5, #64
21:
  ldp q0, q1, [x1]
  ldp q2, q3, [x1, #32]
  stp q0, q1, [x0]
  stp q2, q3, [x0, #32]
  add x1, x1, #64
  add x0, x0, #64
  cmp x0, x6
  b.lo 21b
  stp q4, q5, [x5, #-64]
  dmb ishst
  stp q6, q7, [x5, #-32]
faultline_odp_copy_long_commit:
  mov x0, x2
  ret
30:
  b.eq 35f
  cmp x2, #16
  b.lo 40f
)" FAULTLINE_COPY_GUARD("to_31") R"(
  ldr q0, [x1]
  ldr q1, [x4, #-16]
  cmp x2, #16
  b.eq 31f
  str q0, [x0]
31:
  dmb ishst
  str q1, [x5, #-16]
faultline_odp_copy_to_31_commit:
  mov x0, x2
  ret
35:
)" FAULTLINE_COPY_GUARD("32") R"(
  ldp q0, q1, [x1]
  dmb ishst
  stp q0, q1, [x0]
faultline_odp_copy_32_commit:
  mov x0, x2
  ret
40:
  cmp x2, #8
  b.lo 50f
)" FAULTLINE_COPY_GUARD("to_15") R"(
  ldr x6, [x1]
  ldr x7, [x4, #-8]
  cmp x2, #8
  b.eq 41f
  str x6, [x0]
41:
  dmb ishst
  str x7, [x5, #-8]
faultline_odp_copy_to_15_commit:
  mov x0, x2
  ret
50:
  cmp x2, #4
  b.lo 60f
)" FAULTLINE_COPY_GUARD("to_7") R"(
  ldr w6, [x1]
  ldr w7, [x4, #-4]
  cmp x2, #4
  b.eq 51f
  str w6, [x0]
51:
  dmb ishst
  str w7, [x5, #-4]
faultline_odp_copy_to_7_commit:
  mov x0, x2
  ret
60:
  cmp x2, #2
  b.lo 70f
)" FAULTLINE_COPY_GUARD("to_3") R"(
  ldrb w6, [x1]
  ldrh w7, [x4, #-2]
  cmp x2, #2
  b.eq 61f
  strb w6, [x0]
61:
  dmb ishst
  strh w7, [x5, #-2]
faultline_odp_copy_to_3_commit:
  mov x0, x2
  ret
70:
  cbz x2, 71f
)" FAULTLINE_COPY_GUARD("1") R"(
  ldrb w6, [x1]
  dmb ishst
  strb w6, [x0]
faultline_odp_copy_1_commit:
71:
  mov x0, x2
  ret
faultline_odp_guarded_copy_pairs_end:
)" FAULTLINE_FUNCTION_END("faultline_odp_guarded_copy_pairs") "  .popsection\n");

extern "C" {
__attribute__((visibility("hidden"))) size_t faultline_odp_copy_pairs(void*, const void*, size_t);
__attribute__((visibility("hidden"))) size_t faultline_odp_guarded_copy_pairs(
    void*, const void*, size_t, const faultline::odp::CopyTicket*);
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_pairs_begin[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_pairs_end[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_copy_pairs_fixup[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_guarded_copy_pairs_end[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_revoked_fault[];
}

namespace faultline::odp {
namespace {

// The guarded routine's entry is for threads without an rseq area; with one its faults match
// restart_ranges().
const std::array<FaultRange, 2> kCopyRanges{
    FaultRange{address_of(faultline_odp_copy_pairs_begin), address_of(faultline_odp_copy_pairs_end),
               address_of(faultline_odp_copy_pairs_fixup)},
    FaultRange{reinterpret_cast<uintptr_t>(faultline_odp_guarded_copy_pairs),
               address_of(faultline_odp_guarded_copy_pairs_end), address_of(faultline_odp_revoked_fault)}};

}  // namespace

size_t tolerant_copy(void* to, const void* from, size_t length_bytes) {
  return faultline_odp_copy_pairs(to, from, length_bytes);
}

size_t guarded_copy(void* to, const void* from, size_t length_bytes, const CopyTicket& ticket) {
  return faultline_odp_guarded_copy_pairs(to, from, length_bytes, &ticket);
}

bool copy_routine_supported(CopyRoutine routine) {
  return routine == CopyRoutine::pairs;
}

size_t tolerant_copy_with(CopyRoutine /*routine*/, void* to, const void* from, size_t length_bytes) {
  return tolerant_copy(to, from, length_bytes);
}

size_t guarded_copy_with(CopyRoutine /*routine*/, void* to, const void* from, size_t length_bytes,
                         const CopyTicket& ticket) {
  return guarded_copy(to, from, length_bytes, ticket);
}

std::span<const FaultRange> tolerant_copy_ranges() {
  return kCopyRanges;
}

}  // namespace faultline::odp
