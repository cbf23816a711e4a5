// SPDX-License-Identifier: BSD-3-Clause
// Public functions for features that this stack lacks. Each returns EOPNOTSUPP, as a provider without the
// feature does.
#include "stack/verbs/objects/objects.hpp"

namespace faultline::verbs {

// --- fork: no device accesses the engine's memory directly, so copy-on-write in a child is harmless ---
FAULTLINE_VERB int ibv_fork_init() {
  return 0;
}
FAULTLINE_VERB ibv_fork_status ibv_is_fork_initialized() {
  return IBV_FORK_UNNEEDED;
}

}  // namespace faultline::verbs
