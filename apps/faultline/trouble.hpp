// SPDX-License-Identifier: BSD-3-Clause
// `faultline trouble NAME`: gives a command to the scenarios of this user's programs.
#pragma once

#include <string>

namespace faultline::cli {

struct TroubleOptions {
  std::string name;   ///< of the command, as in `when = { command = "NAME" }`
  bool ends = false;  ///< ends the command
  unsigned pid = 0;   ///< only this process; 0: each
};

/// Prints a line for each program that was reached to stderr. Returns the exit status: 0 if a scenario took
/// the command, 2 if none did.
[[nodiscard]] int run_trouble(const TroubleOptions& options);

}  // namespace faultline::cli
