// SPDX-License-Identifier: BSD-3-Clause
// One seed's fabric, traffic and mishaps, and the verdict on it.
#pragma once

#include <cstdint>
#include <string>

namespace faultline::sim {

/// Seeds from here on are of one theme: the program calls madvise, mprotect, munmap and the like under its
/// traffic.
constexpr uint64_t kFirstOdpMixSeed = 1'000'000'000;

struct ScenarioResult {
  bool passed = false;
  std::string error;    ///< what was wrong
  std::string setting;  ///< the seed's fabric in words
  std::string trace;    ///< packets, for a failure or where asked for
  uint64_t packets = 0;
  uint64_t virtual_ns = 0;
  uint64_t retransmissions = 0, timeouts = 0, faults = 0, rnr_naks = 0;
};

struct ScenarioOptions {
  bool with_trace = false;
  std::string pcap_path;  ///< where to write the packets; empty: nowhere
};

/// Runs the seed from start to end.
[[nodiscard]] ScenarioResult run_scenario(uint64_t seed, const ScenarioOptions& options);

}  // namespace faultline::sim
