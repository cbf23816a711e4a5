// SPDX-License-Identifier: BSD-3-Clause
// The cause of a failing run: whether a replay of its decisions fails too, and the fewest that do.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/faultline/explore/run/run_test.hpp"

namespace faultline::cli {

/// Where one job runs the test, one run at a time.
struct Bench {
  const RunPlan& plan;
  std::string scenario_name;
  std::string folder;  ///< of this job alone
  size_t job = 0;
  NetworkFds network;

  [[nodiscard]] Outcome run(const Trouble& trouble, const std::string& name) const {
    return run_test(plan, trouble, folder + "/" + name, job, network);
  }
};

struct Finding {
  uint64_t seed = 0;
  Verdict verdict;
  std::vector<Journal> journals;  ///< of the seed's own run, with a header each
  std::vector<Decision> made;     ///< the decisions of all of them
  std::vector<Decision> kept;     ///< those that are left
  bool is_repeatable = false;     ///< a replay fails in the same way
  bool is_minimal = false;        ///< without any one of `kept` a replay passes
  size_t replays = 0;
  std::optional<uint64_t> like;  ///< a seed that failed with the same decisions before
  std::string outputs;           ///< folder of the run whose outputs show the failure best
  std::string recording_note;    ///< why there is no recording; "" if the programs may have recorded
};

/// Causes that were found, for all jobs.
class KnownCauses {
 public:
  struct Cause {
    uint64_t seed = 0;
    Failure failure = Failure::none;
    std::vector<Decision> decisions;
  };

  void add(const Finding& finding);
  /// Returns a cause of such a failure whose decisions are all in `made`.
  [[nodiscard]] std::optional<Cause> find(Failure failure, const std::vector<Decision>& made);

 private:
  std::mutex mutex_;
  std::vector<Cause> causes_;
};

/// Confirms and shrinks a failing run, `outcome`, whose folder is `run` of the bench. Returns none if it was
/// stopped.
[[nodiscard]] std::optional<Finding> find_cause(const Bench& bench, uint64_t seed, const Outcome& outcome,
                                                size_t most_replays, KnownCauses& known);

}  // namespace faultline::cli
