// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/process/kernel_signals.hpp"

// rt_sigreturn(2). The CFI describes the frame as glibc's does, so that exceptions and cancellation pass
// through handlers. Every register is in the ucontext_t at the stack pointer, from byte 40 on. The nop before
// the label belongs to the frame too: unwinders look up a return address by the byte before it.
asm(R"(
  .pushsection .text
  .macro faultline_saved_register number, offset
  .cfi_escape 0x10, \number, 3, 0x77, (\offset & 0x7f) | 0x80, \offset >> 7
  .endm
  .p2align 4
  .cfi_startproc
  .cfi_signal_frame
  .cfi_escape 0x0f, 4, 0x77, 0xa0, 1, 6
  faultline_saved_register 8, 40
  faultline_saved_register 9, 48
  faultline_saved_register 10, 56
  faultline_saved_register 11, 64
  faultline_saved_register 12, 72
  faultline_saved_register 13, 80
  faultline_saved_register 14, 88
  faultline_saved_register 15, 96
  faultline_saved_register 5, 104
  faultline_saved_register 4, 112
  faultline_saved_register 6, 120
  faultline_saved_register 3, 128
  faultline_saved_register 1, 136
  faultline_saved_register 0, 144
  faultline_saved_register 2, 152
  faultline_saved_register 7, 160
  faultline_saved_register 16, 168
  nop
  .globl faultline_restore_rt
  .hidden faultline_restore_rt
  .type faultline_restore_rt, @function
faultline_restore_rt:
  movq $15, %rax
  syscall
  .cfi_endproc
  .size faultline_restore_rt, . - faultline_restore_rt
  .popsection
)");
