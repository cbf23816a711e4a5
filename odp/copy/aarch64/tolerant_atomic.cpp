// SPDX-License-Identifier: BSD-3-Clause
#include "odp/copy/tolerant_atomic.hpp"

#include "odp/copy/aarch64/guard.hpp"

// AAPCS64: x0 = memory, x1 and x2 = operands, the last argument = address for the original value; w0 =
// whether it was done. Only the exclusive load and store may fault, and no stack is used: the fixup can
// simply return. They are in every CPU of this kind, unlike the instructions of LSE.
asm("  .pushsection .text\n" FAULTLINE_FUNCTION("faultline_odp_atomic_swap") R"(
faultline_odp_atomic_swap_begin:
10:
  ldaxr x4, [x0]
  cmp x4, x1
  b.ne 20f
  stlxr w5, x2, [x0]
  cbnz w5, 10b
faultline_odp_atomic_swap_end:
20:
  str x4, [x3]
  mov w0, #1
  ret
)" FAULTLINE_FUNCTION_END("faultline_odp_atomic_swap") FAULTLINE_FUNCTION("faultline_odp_atomic_add") R"(
faultline_odp_atomic_add_begin:
10:
  ldaxr x4, [x0]
  add x5, x4, x1
  stlxr w6, x5, [x0]
  cbnz w6, 10b
faultline_odp_atomic_add_end:
  str x4, [x2]
  mov w0, #1
  ret
)" FAULTLINE_FUNCTION_END("faultline_odp_atomic_add") FAULTLINE_FUNCTION("faultline_odp_atomic_store") R"(
faultline_odp_atomic_store_begin:
10:
  ldaxr x4, [x0]
  stlxr w5, x1, [x0]
  cbnz w5, 10b
faultline_odp_atomic_store_end:
  str x4, [x2]
  mov w0, #1
  ret
faultline_odp_atomic_fixup:
  mov w0, #0
  ret
)" FAULTLINE_FUNCTION_END("faultline_odp_atomic_store") "  .popsection\n");

// The guarded forms: the last argument is the ticket. Each commits with its exclusive store: a completed
// operation is never repeated. Whether it stored is known after the sequence; if not, the operation begins
// again, with its check. w0: 1 done, 0 fault, -1 revoked.
asm("  .pushsection .text\n" FAULTLINE_FUNCTION("faultline_odp_guarded_swap") "10:\n" FAULTLINE_GUARD(
    "faultline_odp_guarded_atomic_swap", "x4") R"(
  ldaxr x5, [x0]
  cmp x5, x1
  b.ne 20f
  stlxr w6, x2, [x0]
faultline_odp_guarded_atomic_swap_commit:
  cbnz w6, 10b
20:
  str x5, [x3]
  mov w0, #1
  ret
)" FAULTLINE_FUNCTION_END("faultline_odp_guarded_swap")
        FAULTLINE_FUNCTION("faultline_odp_guarded_add") "10:\n" FAULTLINE_GUARD(
            "faultline_odp_guarded_atomic_add", "x3") R"(
  ldaxr x4, [x0]
  add x5, x4, x1
  stlxr w6, x5, [x0]
faultline_odp_guarded_atomic_add_commit:
  cbnz w6, 10b
  str x4, [x2]
  mov w0, #1
  ret
)" FAULTLINE_FUNCTION_END("faultline_odp_guarded_add")
            FAULTLINE_FUNCTION("faultline_odp_guarded_store") "10:\n" FAULTLINE_GUARD(
                "faultline_odp_guarded_atomic_store", "x3") R"(
  ldaxr x4, [x0]
  stlxr w5, x1, [x0]
faultline_odp_guarded_atomic_store_commit:
  cbnz w5, 10b
  str x4, [x2]
  mov w0, #1
  ret
)" FAULTLINE_FUNCTION_END("faultline_odp_guarded_store") "  .popsection\n");

// tolerant_atomic_ranges(): begin, end, fixup.
asm(R"(
  .pushsection .data.rel.ro.faultline, "aw", %progbits
  .balign 8
  .globl faultline_odp_atomic_ranges
  .hidden faultline_odp_atomic_ranges
  .type faultline_odp_atomic_ranges, %object
faultline_odp_atomic_ranges:
  .quad faultline_odp_atomic_swap_begin, faultline_odp_atomic_swap_end, faultline_odp_atomic_fixup
  .quad faultline_odp_atomic_add_begin, faultline_odp_atomic_add_end, faultline_odp_atomic_fixup
  .quad faultline_odp_atomic_store_begin, faultline_odp_atomic_store_end, faultline_odp_atomic_fixup
  .quad faultline_odp_guarded_atomic_swap_start, faultline_odp_guarded_atomic_swap_commit, faultline_odp_atomic_fixup
  .quad faultline_odp_guarded_atomic_add_start, faultline_odp_guarded_atomic_add_commit, faultline_odp_atomic_fixup
  .quad faultline_odp_guarded_atomic_store_start, faultline_odp_guarded_atomic_store_commit, faultline_odp_atomic_fixup
  .size faultline_odp_atomic_ranges, . - faultline_odp_atomic_ranges
  .popsection
)");
