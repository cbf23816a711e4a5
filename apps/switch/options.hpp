// SPDX-License-Identifier: BSD-3-Clause
// The command line of faultline-switch.
#pragma once

#include <optional>
#include <string>

#include "pmd_glue/config/config.hpp"

namespace faultline::switching {

struct Options {
  std::string wire;
  std::optional<glue::PortConfig> uplink;
  std::optional<unsigned> linger_seconds;  ///< nothing: until it is told to end
  std::optional<int> listener;             ///< inherited from the program that started it
  bool recover = false;                    ///< one before it died: its programs come first
  std::string log_level = "warn";
};

/// Ends the process on --help (0) and bad options (2).
[[nodiscard]] Options parse_options(int argc, char** argv);

/// What EAL and the ports are made with.
[[nodiscard]] glue::Config config_of(const Options& options);

}  // namespace faultline::switching
