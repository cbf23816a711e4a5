// SPDX-License-Identifier: BSD-3-Clause
// The client's session with a server: the plans of the command line one after another, or by a prompt.
#pragma once

#include <vector>

#include "apps/perf/traffic/client.hpp"

namespace faultline::perf {

class ClientSession {
 public:
  ClientSession(Exchange& exchange, const Device& device, const TestOptions& options);

  /// Every op with every size, a table, the JSON file. False where a byte was wrong.
  [[nodiscard]] bool run_batch();
  /// Reads commands from standard input until `quit` or its end.
  void run_prompt();

 private:
  [[nodiscard]] Plan plan_for(Op op, uint64_t size_bytes, RegionKind region) const;
  [[nodiscard]] Result run_plan(const Plan& plan, const RunControl& control);
  void measure_limits(Result& result);

  Exchange& exchange_;
  const Device& device_;
  TestOptions options_;
  uint32_t mtu_bytes_ = 0;
};

}  // namespace faultline::perf
