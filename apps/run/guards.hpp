// SPDX-License-Identifier: BSD-3-Clause
// faultline-run --guards: the guards that a program started by it would have.
#pragma once

namespace faultline::run {

/// Hidden option with which faultline-run executes itself with the library preloaded.
inline constexpr const char* kOwnGuardsOption = "--guards-of-this-process";

/// Prints this process's guards, one per line. Returns the exit status: 1 if the library is not loaded.
[[nodiscard]] int print_guards();

}  // namespace faultline::run
