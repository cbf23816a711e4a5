// SPDX-License-Identifier: BSD-3-Clause
#include "odp/copy/tolerant_atomic.hpp"

#include <array>

#include "odp/copy/restartable_copy.hpp"

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

extern "C" {
using faultline::odp::CopyTicket;
__attribute__((visibility("hidden"))) int faultline_odp_guarded_swap(void*, uint64_t, uint64_t, uint64_t*,
                                                                     const CopyTicket*);
__attribute__((visibility("hidden"))) int faultline_odp_guarded_add(void*, uint64_t, uint64_t*,
                                                                    const CopyTicket*);
__attribute__((visibility("hidden"))) int faultline_odp_guarded_store(void*, uint64_t, uint64_t*,
                                                                      const CopyTicket*);
__attribute__((visibility("hidden"))) extern const char faultline_odp_guarded_atomic_swap_start[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_guarded_atomic_swap_commit[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_guarded_atomic_add_start[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_guarded_atomic_add_commit[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_guarded_atomic_store_start[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_guarded_atomic_store_commit[];
__attribute__((visibility("hidden"))) int faultline_odp_atomic_swap(void*, uint64_t, uint64_t, uint64_t*);
__attribute__((visibility("hidden"))) int faultline_odp_atomic_add(void*, uint64_t, uint64_t*);
__attribute__((visibility("hidden"))) int faultline_odp_atomic_store(void*, uint64_t, uint64_t*);
__attribute__((visibility("hidden"))) extern const char faultline_odp_atomic_swap_begin[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_atomic_swap_end[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_atomic_add_begin[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_atomic_add_end[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_atomic_store_begin[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_atomic_store_end[];
__attribute__((visibility("hidden"))) extern const char faultline_odp_atomic_fixup[];
}

namespace faultline::odp {
namespace {

FaultRange range(const char* begin, const char* end) {
  return {reinterpret_cast<uintptr_t>(begin), reinterpret_cast<uintptr_t>(end),
          reinterpret_cast<uintptr_t>(faultline_odp_atomic_fixup)};
}

const std::array<FaultRange, 6> kRanges{
    range(faultline_odp_atomic_swap_begin, faultline_odp_atomic_swap_end),
    range(faultline_odp_atomic_add_begin, faultline_odp_atomic_add_end),
    range(faultline_odp_atomic_store_begin, faultline_odp_atomic_store_end),
    range(faultline_odp_guarded_atomic_swap_start, faultline_odp_guarded_atomic_swap_commit),
    range(faultline_odp_guarded_atomic_add_start, faultline_odp_guarded_atomic_add_commit),
    range(faultline_odp_guarded_atomic_store_start, faultline_odp_guarded_atomic_store_commit)};

}  // namespace

bool tolerant_atomic(void* at, const AtomicRequest& request, uint64_t& original) {
  switch (request.op) {
    case AtomicOp::compare_swap:
      return faultline_odp_atomic_swap(at, request.compare, request.operand, &original) != 0;
    case AtomicOp::fetch_add:
      return faultline_odp_atomic_add(at, request.operand, &original) != 0;
    case AtomicOp::store:
      return faultline_odp_atomic_store(at, request.operand, &original) != 0;
  }
  return false;
}

GuardedAtomic guarded_atomic(void* at, const AtomicRequest& request, uint64_t& original,
                             const CopyTicket& ticket) {
  int result = 0;
  switch (request.op) {
    case AtomicOp::compare_swap:
      result = faultline_odp_guarded_swap(at, request.compare, request.operand, &original, &ticket);
      break;
    case AtomicOp::fetch_add:
      result = faultline_odp_guarded_add(at, request.operand, &original, &ticket);
      break;
    case AtomicOp::store:
      result = faultline_odp_guarded_store(at, request.operand, &original, &ticket);
      break;
  }
  return result == 1 ? GuardedAtomic::done : result == 0 ? GuardedAtomic::fault : GuardedAtomic::revoked;
}

std::span<const FaultRange> tolerant_atomic_ranges() {
  return kRanges;
}

}  // namespace faultline::odp
