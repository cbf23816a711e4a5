// SPDX-License-Identifier: BSD-3-Clause
#include "odp/tolerant_atomic.hpp"

#include <array>

// System V ABI: rdi = memory, rsi and rdx = operands, the last argument = where the original goes; eax =
// whether it was done. Only the locked instruction may fault, and no stack is used: the fixup can simply
// return.
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

extern "C" {
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

const std::array<FaultRange, 3> kRanges{
    range(faultline_odp_atomic_swap_begin, faultline_odp_atomic_swap_end),
    range(faultline_odp_atomic_add_begin, faultline_odp_atomic_add_end),
    range(faultline_odp_atomic_store_begin, faultline_odp_atomic_store_end)};

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

std::span<const FaultRange> tolerant_atomic_ranges() {
  return kRanges;
}

}  // namespace faultline::odp
