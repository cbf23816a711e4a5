// SPDX-License-Identifier: BSD-3-Clause
#include "odp/copy/tolerant_atomic.hpp"

#include "odp/copy/x86_64/guard.hpp"

// System V ABI: rdi = memory, rsi and rdx = operands, the last argument = address for the original value;
// eax = whether it was done. Only the locked instruction may fault, and no stack is used: the fixup can
// simply return.
asm(R"(
  .pushsection .text
  .p2align 5
  .globl faultline_odp_atomic_swap
  .hidden faultline_odp_atomic_swap
  .type faultline_odp_atomic_swap, @function
faultline_odp_atomic_swap:
  .cfi_startproc
  endbr64
  movq %rsi, %rax
faultline_odp_atomic_swap_begin:
  lock cmpxchgq %rdx, (%rdi)
faultline_odp_atomic_swap_end:
  movq %rax, (%rcx)
  movl $1, %eax
  ret
  .cfi_endproc
  .size faultline_odp_atomic_swap, . - faultline_odp_atomic_swap

  .p2align 5
  .globl faultline_odp_atomic_add
  .hidden faultline_odp_atomic_add
  .type faultline_odp_atomic_add, @function
faultline_odp_atomic_add:
  .cfi_startproc
  endbr64
faultline_odp_atomic_add_begin:
  lock xaddq %rsi, (%rdi)
faultline_odp_atomic_add_end:
  movq %rsi, (%rdx)
  movl $1, %eax
  ret
  .cfi_endproc
  .size faultline_odp_atomic_add, . - faultline_odp_atomic_add

  .p2align 5
  .globl faultline_odp_atomic_store
  .hidden faultline_odp_atomic_store
  .type faultline_odp_atomic_store, @function
faultline_odp_atomic_store:
  .cfi_startproc
  endbr64
faultline_odp_atomic_store_begin:
  xchgq %rsi, (%rdi)
faultline_odp_atomic_store_end:
  movq %rsi, (%rdx)
  movl $1, %eax
  ret
faultline_odp_atomic_fixup:
  xorl %eax, %eax
  ret
  .cfi_endproc
  .size faultline_odp_atomic_store, . - faultline_odp_atomic_store
  .popsection
)");

// The guarded forms: the last argument is the ticket. Each commits with its locked instruction: a completed
// operation is never repeated. eax: 1 done, 0 fault, -1 revoked.
#define FAULTLINE_GUARDED_ATOMIC(NAME, TICKET, BEFORE, OPERATION, AFTER)                              \
  "  .p2align 5\n"                                                                                    \
  "  .globl faultline_odp_guarded_" NAME                                                              \
  "\n"                                                                                                \
  "  .hidden faultline_odp_guarded_" NAME                                                             \
  "\n"                                                                                                \
  "  .type faultline_odp_guarded_" NAME                                                               \
  ", @function\n"                                                                                     \
  "faultline_odp_guarded_" NAME                                                                       \
  ":\n"                                                                                               \
  "  .cfi_startproc\n"                                                                                \
  "  endbr64\n" FAULTLINE_GUARD("faultline_odp_guarded_atomic_" NAME, TICKET, "%r10",                 \
                                "faultline_odp_revoked") BEFORE "  " OPERATION                        \
                                                                "\n"                                  \
                                                                "faultline_odp_guarded_atomic_" NAME  \
                                                                "_commit:\n"                          \
                                                                "  " AFTER                            \
                                                                "\n"                                  \
                                                                "  movl $1, %eax\n"                   \
                                                                "  ret\n"                             \
                                                                "  .cfi_endproc\n"                    \
                                                                "  .size faultline_odp_guarded_" NAME \
                                                                ", . - faultline_odp_guarded_" NAME "\n"
asm("  .pushsection .text\n" FAULTLINE_GUARDED_ATOMIC("swap", "%r8", "  movq %rsi, %rax\n",
                                                      "lock cmpxchgq %rdx, (%rdi)", "movq %rax, (%rcx)")
        FAULTLINE_GUARDED_ATOMIC("add", "%rcx", "", "lock xaddq %rsi, (%rdi)", "movq %rsi, (%rdx)")
            FAULTLINE_GUARDED_ATOMIC("store", "%rcx", "", "xchgq %rsi, (%rdi)",
                                     "movq %rsi, (%rdx)") "  .popsection\n");

// tolerant_atomic_ranges(): begin, end, fixup.
asm(R"(
  .pushsection .data.rel.ro.faultline, "aw", @progbits
  .balign 8
  .globl faultline_odp_atomic_ranges
  .hidden faultline_odp_atomic_ranges
  .type faultline_odp_atomic_ranges, @object
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
