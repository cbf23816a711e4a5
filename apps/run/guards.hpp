// SPDX-License-Identifier: BSD-3-Clause
// faultline-run --guards: what a program that it starts would be told of its guards.
#pragma once

namespace faultline::run {

/// The hidden option by which faultline-run runs itself with the library preloaded.
inline constexpr const char* kOwnGuardsOption = "--guards-of-this-process";

/// Prints this process's guards, one a line. The exit status: 1 where the library is not loaded.
[[nodiscard]] int print_guards();

}  // namespace faultline::run
