// SPDX-License-Identifier: BSD-3-Clause
// faultline-run --guards: the guards that a program it starts would have.
#pragma once

namespace faultline::run {

/// The hidden option by which faultline-run runs itself with the library preloaded.
inline constexpr const char* kOwnGuardsOption = "--guards-of-this-process";

/// Prints this process's guards, one a line. The exit status: 1 where the library is not loaded.
[[nodiscard]] int print_guards();

}  // namespace faultline::run
