// SPDX-License-Identifier: BSD-3-Clause
// The client's connection to a server: runs the plans of the command line in order, or takes commands from a
// prompt.
#pragma once

#include <vector>

#include "apps/perf/traffic/client.hpp"

namespace faultline::perf {

class ClientSession {
 public:
  ClientSession(Exchange& exchange, const PerfDevice& device, const TestOptions& options);

  /// Runs every op with every size, prints a table and writes the JSON file. Returns false if a byte was
  /// wrong.
  [[nodiscard]] bool run_batch();
  /// Reads commands from standard input until `quit` or end of file.
  void run_prompt();

 private:
  [[nodiscard]] Plan plan_for(Op op, uint64_t size_bytes, RegionKind region) const;
  [[nodiscard]] Result run_plan(const Plan& plan, const RunControl& control);
  void measure_limits(Result& result);

  Exchange& exchange_;
  const PerfDevice& device_;
  TestOptions options_;
  uint32_t mtu_bytes_ = 0;
};

}  // namespace faultline::perf
