// SPDX-License-Identifier: BSD-3-Clause
// A hook that runs before the process ends by _exit(2).
#pragma once

namespace faultline::odp {

/// Sets `hook` to run once, when this process calls _exit or _Exit. It does not run in a forked child. `hook`
/// must be async-signal-safe.
void set_exit_hook(void (*hook)());

/// Runs the hook; called by the interposed functions.
void run_exit_hook();

}  // namespace faultline::odp
