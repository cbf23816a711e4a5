// SPDX-License-Identifier: BSD-3-Clause
// What a process does before it ends by _exit(2).
#pragma once

namespace faultline::odp {

/// `hook` runs when this process calls _exit or _Exit, once; a forked child's does not. It must be
/// async-signal-safe.
void set_exit_hook(void (*hook)());

/// For the interposed calls.
void run_exit_hook();

}  // namespace faultline::odp
