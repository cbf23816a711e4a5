// SPDX-License-Identifier: BSD-3-Clause
// The client's connection to a server: runs the plans of the command line in order. The prompt uses it
// too, a plan at a time.
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

  /// What first_plan() is made of. The next plan has what is changed here.
  [[nodiscard]] TestOptions& options() { return options_; }
  [[nodiscard]] const TestOptions& options() const { return options_; }
  /// Returns the plan of the first op, size and kind of memory. Throws ConfigError if the ports do not carry
  /// it.
  [[nodiscard]] Plan first_plan() const;
  [[nodiscard]] Exchange& exchange() const { return exchange_; }
  [[nodiscard]] const PerfDevice& device() const { return device_; }
  /// Returns the largest path MTU that both ports carry.
  [[nodiscard]] uint32_t max_mtu_bytes() const { return max_mtu_bytes_; }
  /// Ends the session at the server.
  void say_bye();

 private:
  [[nodiscard]] uint32_t mtu_bytes() const;
  [[nodiscard]] Plan plan_for(Op op, uint64_t size_bytes, RegionKind region) const;
  [[nodiscard]] Result run_plan(const Plan& plan, const RunControl& control);
  void measure_limits(Result& result);

  Exchange& exchange_;
  const PerfDevice& device_;
  TestOptions options_;
  uint32_t max_mtu_bytes_ = 0;
};

}  // namespace faultline::perf
