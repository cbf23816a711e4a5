// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/device/thread_affinity.hpp"

namespace faultline::glue {

// A failed call leaves the thread where it may run anyway: only the wake-up takes longer.
void ThreadAffinity::avoid(int cpu) {
  if (cpu == avoided_) return;
  restore();
  if (sched_getaffinity(0, sizeof before_, &before_) != 0) return;
  avoided_ = cpu;
  reduced_ = before_;
  CPU_CLR(cpu, &reduced_);
  if (CPU_COUNT(&reduced_) == 0 || sched_setaffinity(0, sizeof reduced_, &reduced_) != 0) reduced_ = before_;
}

void ThreadAffinity::restore() {
  if (avoided_ < 0) return;
  avoided_ = -1;
  cpu_set_t now;
  if (CPU_EQUAL(&reduced_, &before_) || sched_getaffinity(0, sizeof now, &now) != 0) return;
  if (CPU_EQUAL(&now, &reduced_)) static_cast<void>(sched_setaffinity(0, sizeof before_, &before_));
}

}  // namespace faultline::glue
