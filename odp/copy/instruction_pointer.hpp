// SPDX-License-Identifier: BSD-3-Clause
// Where a signal interrupted its thread, and where the thread goes on.
#pragma once

#include <cstdint>

#include <ucontext.h>

namespace faultline::odp {

[[nodiscard]] inline uintptr_t instruction_of(const ucontext_t& machine) {
#if defined(__x86_64__)
  return static_cast<uintptr_t>(machine.uc_mcontext.gregs[REG_RIP]);
#else
  return machine.uc_mcontext.pc;
#endif
}

inline void go_on_at(ucontext_t& machine, uintptr_t instruction) {
#if defined(__x86_64__)
  machine.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(instruction);
#else
  machine.uc_mcontext.pc = instruction;
#endif
}

}  // namespace faultline::odp
