// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/device/progress_state.hpp"

namespace faultline::glue {

// Sequentially consistent: the program stores its rest before it reads whether the progress thread sleeps.
// The progress thread stores that it sleeps before its last check.
ProgressAction ProgressOwner::note(ProgressEvent event) {
  ProgressState state = state_.load(std::memory_order_seq_cst);
  for (;;) {
    const ProgressTransition to = transition(state, event);
    if (to.next == state || state_.compare_exchange_weak(state, to.next, std::memory_order_seq_cst))
      return to.action;
  }
}

}  // namespace faultline::glue
