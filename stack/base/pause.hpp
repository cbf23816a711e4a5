// SPDX-License-Identifier: BSD-3-Clause
// Tells the CPU that this thread spins, so that the core's other thread gets the time.
#pragma once

namespace faultline {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#else
#error "add this CPU's instruction for a spinning thread"
#endif
}

}  // namespace faultline
