// SPDX-License-Identifier: BSD-3-Clause
// The command line of faultline-switch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/switch/rate_limit.hpp"
#include "pmd_glue/config/config.hpp"

namespace faultline::switching {

struct Options {
  std::string wire;
  bool asks_status = false;  ///< of the wire's switch, instead of being one
  bool as_json = false;
  std::optional<glue::DeviceConfig> uplink;
  bool has_host = false;  ///< the address of `uplink` is the host's, which the programs share
  std::string exception;  ///< the tap to the kernel; empty: none
  Rates rates;
  std::vector<std::string> pmds;  ///< modules of PMDs to load (pmd_modules.hpp)
  glue::EalConfig eal;
  std::string config_path;                 ///< empty: no --config
  std::optional<unsigned> linger_seconds;  ///< none: runs until a signal
  std::optional<int> listener;             ///< inherited from the program that started the switch
  bool recover = false;                    ///< a previous switch died: its programs attach first
  std::string log_level = "warn";
  std::string log_file;  ///< as log_to_file() takes it; empty: stderr
};

/// Exits the process with 0 on --help and with 2 on bad options.
[[nodiscard]] Options parse_options(int argc, char** argv);

/// Returns the configuration for EAL and the ports.
[[nodiscard]] glue::Config config_of(const Options& options);

}  // namespace faultline::switching
