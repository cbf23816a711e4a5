// SPDX-License-Identifier: BSD-3-Clause
// The options by which `info` and `doctor` are given devices.
#pragma once

#include <string>

#include "apps/faultline/start_program.hpp"

namespace faultline::cli {

struct DeviceOptions {
  std::string config;
  std::string wire;
  std::string ip;
  bool udp = false;
};

/// Returns the devices of the options, or else those of $FAULTLINE_CONFIG, $FAULTLINE_WIRE or $FAULTLINE_UDP.
/// A configuration file is read. Throws glue::ConfigError with one line.
[[nodiscard]] DeviceChoice choose_devices(const DeviceOptions& options);

/// Returns the devices in a few words, for a line: "wire w0"; "" if there are none.
[[nodiscard]] std::string text_of(const DeviceChoice& devices);

}  // namespace faultline::cli
