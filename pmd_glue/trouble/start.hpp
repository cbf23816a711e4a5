// SPDX-License-Identifier: BSD-3-Clause
// Starts trouble in this process, as the environment asks for it.
#pragma once

namespace faultline::glue {

/// Reads $FAULTLINE_TROUBLE or $FAULTLINE_TROUBLE_REPLAY, with $FAULTLINE_TROUBLE_SEED and
/// $FAULTLINE_TROUBLE_JOURNAL, and sets trouble::director(). Does nothing without them, or if it has been
/// done. Throws ConfigError. Programs with raised rights do not heed the environment (secure_getenv(3)).
void start_trouble();

}  // namespace faultline::glue
