// SPDX-License-Identifier: BSD-3-Clause
// Keeps the calling thread away from one of the CPUs that it may use. Owner: the thread.
#pragma once

#include <sched.h>

namespace faultline::glue {

class ThreadAffinity {
 public:
  /// Leaves the CPU, if the thread may use another one.
  void avoid(int cpu);
  /// Returns the CPU that avoid() has taken away, unless the thread's CPUs were changed since.
  void restore();

 private:
  int avoided_ = -1;
  cpu_set_t before_{};
  cpu_set_t reduced_{};
};

}  // namespace faultline::glue
