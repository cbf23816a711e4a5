// SPDX-License-Identifier: BSD-3-Clause
// `faultline top`: what the devices of this user's programs do.
#pragma once

#include <string>

namespace faultline::cli {

struct TopOptions {
  bool once = false;
  bool as_json = false;
  bool post_mortem = false;
  double seconds = 1;
  std::string device;
  unsigned pid = 0;
};

/// Shows the screen, or prints the state once. Returns the exit status; a mistake is one line on stderr.
[[nodiscard]] int run_top(const TopOptions& options);

}  // namespace faultline::cli
