// SPDX-License-Identifier: BSD-3-Clause
// Runs one seed: its fabric, its traffic and its faults, and checks the result.
#pragma once

#include <cstdint>
#include <string>

namespace faultline::sim {

/// Seeds from here on have one theme: the program calls madvise, mprotect, munmap and similar during traffic.
constexpr uint64_t kFirstOdpMixSeed = 1'000'000'000;
/// Seeds from here on have 3 to 16 hosts; those before have two.
constexpr uint64_t kFirstManyHostsSeed = 2'000'000'000;

struct ScenarioResult {
  bool passed = false;
  std::string error;     ///< what failed
  std::string setting;   ///< description of the seed's fabric
  std::string trace;     ///< packets, after a failure or on request
  uint64_t packets = 0;  ///< each link that a packet passes counts it
  uint64_t digest = 0;   ///< with ScenarioOptions::with_digest
  uint64_t virtual_ns = 0;
  uint64_t retransmissions = 0, timeouts = 0, faults = 0, rnr_naks = 0;
};

struct ScenarioOptions {
  bool with_trace = false;
  bool with_digest = false;  ///< of all packets and the final memory: equal in two runs of a seed
  std::string pcap_path;     ///< pcap file for the packets; empty: none
};

/// Runs the seed from start to end.
[[nodiscard]] ScenarioResult run_scenario(uint64_t seed, const ScenarioOptions& options);

}  // namespace faultline::sim
