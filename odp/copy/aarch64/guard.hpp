// SPDX-License-Identifier: BSD-3-Clause
// How a guarded copy begins, for the assembly of this folder. See restartable_copy.hpp.
#pragma once

/// Assembly: begins the restartable sequence NAME. TICKET is the register that points to the CopyTicket; x14
/// and x15 are overwritten. Goes to faultline_odp_revoked if the ticket is old. The sequence ends, committed,
/// at the label NAME_commit, which follows the instruction that stores last.
#define FAULTLINE_GUARD(NAME, TICKET)                                \
  "  ldr x14, [" TICKET                                              \
  ", #8]\n"                                                          \
  "  adrp x15, " NAME                                                \
  "_sequence\n"                                                      \
  "  add x15, x15, :lo12:" NAME                                      \
  "_sequence\n"                                                      \
  "  str x15, [x14]\n" NAME                                          \
  "_start:\n"                                                        \
  "  ldr x14, [" TICKET                                              \
  "]\n"                                                              \
  "  adrp x15, faultline_odp_revocations\n"                          \
  "  add x15, x15, :lo12:faultline_odp_revocations\n"                \
  "  ldar x15, [x15]\n"                                              \
  "  cmp x14, x15\n"                                                 \
  "  b.eq 99f\n"                                                     \
  "  b faultline_odp_revoked\n" /* further away than b.ne reaches */ \
  "99:\n"                                                            \
  "  .pushsection .data.rel.ro.faultline, \"aw\", %progbits\n"       \
  "  .balign 32\n" NAME                                              \
  "_sequence:\n"                                                     \
  "  .word 0, 0\n"                                                   \
  "  .xword " NAME "_start, " NAME "_commit - " NAME                 \
  "_start, faultline_odp_revoked\n"                                  \
  "  .popsection\n"

/// Assembly: the begin and the end of a function that may be called by a pointer.
#define FAULTLINE_FUNCTION(NAME)       \
  "  .p2align 5\n"                     \
  "  .globl " NAME                     \
  "\n"                                 \
  "  .hidden " NAME                    \
  "\n"                                 \
  "  .type " NAME ", %function\n" NAME \
  ":\n"                                \
  "  .cfi_startproc\n"                 \
  "  hint #34  // bti c\n"
#define FAULTLINE_FUNCTION_END(NAME) \
  "  .cfi_endproc\n"                 \
  "  .size " NAME ", . - " NAME "\n"
