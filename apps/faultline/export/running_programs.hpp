// SPDX-License-Identifier: BSD-3-Clause
// The counters of this user's running programs, from their status segments (stack/status).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

namespace faultline::cli {

/// A counter as the program that has it describes it (docs/counters.md).
struct CounterSample {
  std::string name;  ///< "transport.tx_packets"
  std::string unit;  ///< "packets"
  std::string kind;  ///< "count", "gauge" or "maximum"
  std::string help;  ///< what it counts
  uint64_t value = 0;
};

struct DeviceSamples {
  pid_t process = 0;
  std::string program;  ///< its name, as ps(1) prints it
  std::string device;
  std::vector<CounterSample> counters;
};

/// Returns the devices of all running programs, by device and process.
[[nodiscard]] std::vector<DeviceSamples> read_running_programs();

}  // namespace faultline::cli
