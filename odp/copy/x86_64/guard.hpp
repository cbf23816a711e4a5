// SPDX-License-Identifier: BSD-3-Clause
// How a guarded copy begins, for the assembly of this folder. See restartable_copy.hpp.
#pragma once

/// Assembly: begins the restartable sequence NAME. TICKET is the register that points to the CopyTicket;
/// SCRATCH and rax are overwritten. Jumps to REVOKED if the ticket is old. The sequence ends, committed, at
/// the label NAME_commit, which follows the instruction that stores last.
#define FAULTLINE_GUARD(NAME, TICKET, SCRATCH, REVOKED)                \
  "  movq 8(" TICKET                                                   \
  "), %rax\n"                                                          \
  "  leaq " NAME "_sequence(%rip), " SCRATCH                           \
  "\n"                                                                 \
  "  movq " SCRATCH ", (%rax)\n" NAME                                  \
  "_start:\n"                                                          \
  "  movq (" TICKET "), " SCRATCH                                      \
  "\n"                                                                 \
  "  cmpq faultline_odp_revocations(%rip), " SCRATCH                   \
  "\n"                                                                 \
  "  jne " REVOKED                                                     \
  "\n"                                                                 \
  "  .pushsection .data.rel.ro.faultline, \"aw\", @progbits\n"         \
  "  .balign 32\n" NAME                                                \
  "_sequence:\n"                                                       \
  "  .long 0, 0\n"                                                     \
  "  .quad " NAME "_start, " NAME "_commit - " NAME "_start, " REVOKED \
  "\n"                                                                 \
  "  .popsection\n"
