// SPDX-License-Identifier: BSD-3-Clause
// All seeds of an exploration, by several jobs at a time, and their results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/faultline/explore/run/own_network.hpp"
#include "apps/faultline/explore/run/run_test.hpp"

namespace faultline::cli {

struct Campaign {
  RunPlan plan;
  std::string scenario_name;
  uint64_t first_seed = 1;
  uint64_t runs = 0;
  unsigned jobs = 1;
  size_t shrink_runs = 0;
  std::vector<OwnNetwork> networks;  ///< one for each job
  std::string out;
  std::string scratch;  ///< a folder for the runs
};

struct CampaignResult {
  uint64_t failures = 0;
  std::string mistake;  ///< "" or one line; then nothing else holds
};

/// Runs the seeds, one thread a job. Prints the failing ones on stderr as they are found, writes their
/// folders and junit.xml. Ends early when the plan's stop_fd becomes readable; junit.xml then has the seeds
/// that were done.
[[nodiscard]] CampaignResult explore_seeds(const Campaign& campaign);

}  // namespace faultline::cli
