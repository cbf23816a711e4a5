// SPDX-License-Identifier: BSD-3-Clause
// Streams of large WRITEs from one host to another over one link, measured in virtual time. The figures are
// the same on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/world/simulation.hpp"

namespace faultline::sim {

struct StreamScript {
  SimulationScript fabric;
  uint32_t streams = 1;
  uint32_t message_bytes = 1 << 20;
  uint64_t duration_ns = 20'000'000;
  uint64_t stagger_ns = 0;  ///< delay between the starts of successive streams
  uint64_t seed = 1;
};

struct StreamResult {
  std::string error;                   ///< empty on success
  std::vector<double> gigabits_per_s;  ///< acknowledged payload per stream, over the second half
  double total = 0;
  double mean_queue_bytes = 0;  ///< of the switch queue
  uint64_t peak_queue_bytes = 0;
  uint64_t queue_drops = 0, queue_marks = 0;
  uint64_t retransmitted = 0, timeouts = 0, notifications = 0;
};

/// 10 Gb/s and 10 us each way, path MTU 4096.
[[nodiscard]] SimulationScript ten_gigabit_fabric();
[[nodiscard]] StreamResult run_streams(const StreamScript& script);

}  // namespace faultline::sim
