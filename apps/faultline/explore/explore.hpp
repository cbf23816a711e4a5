// SPDX-License-Identifier: BSD-3-Clause
// `faultline explore`: runs a test under many seeds of trouble, and finds what each failure needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/faultline/explore/run/test_description.hpp"

namespace faultline::cli {

struct ExploreOptions {
  std::string trouble;
  uint64_t runs = 100;
  uint64_t first_seed = 1;
  unsigned jobs = 1;
  double timeout_s = 30;
  size_t shrink_runs = 200;
  std::string pass;
  std::vector<int> accepted;
  bool any_status = false;
  std::string out = "faultline-explore";
  bool has_shared_network = false;
  TestDevices devices;
  std::string side;
  std::string ip;
  std::string test_file;
  std::vector<std::string> servers;
  std::vector<std::string> programs;
  unsigned delay_ms = 0;
  std::vector<std::string> command;
};

/// Explores. Returns the exit status: 0 if no run failed, 1 if one did, 2 for a mistake, 128 and a signal's
/// number after that signal. A mistake is one line on stderr.
[[nodiscard]] int run_explore(const ExploreOptions& options);

}  // namespace faultline::cli
