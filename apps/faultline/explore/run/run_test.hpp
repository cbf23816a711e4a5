// SPDX-License-Identifier: BSD-3-Clause
// One run of a test: its programs from start to end, in a folder of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/faultline/explore/run/decision.hpp"
#include "apps/faultline/explore/run/processes.hpp"
#include "apps/faultline/explore/run/test_description.hpp"
#include "apps/faultline/explore/run/verdict.hpp"

namespace faultline::cli {

/// What all runs have in common.
struct RunPlan {
  Test test;
  std::string scenario;  ///< absolute path
  std::chrono::milliseconds timeout{};
  std::string pass;  ///< a shell's command; "": none
  Allowed allowed;
  std::string runner;  ///< path of faultline-run
  int stop_fd = -1;    ///< becomes readable when all runs shall end
};

enum class TroubleKind : uint8_t { none, seed, replay };

struct Trouble {
  TroubleKind kind = TroubleKind::none;
  uint64_t seed = 0;
  std::vector<std::string> journals = {};  ///< replay: the text of each program's
  bool is_recorded = false;                ///< each program keeps a recording-N
};

struct Outcome {
  Verdict verdict;
  std::vector<Journal> journals;  ///< one for each program
  bool is_stopped = false;        ///< by stop_fd: there is no verdict
  std::string mistake;            ///< why the run could not be made; "" if it was
};

/// Runs the test. `folder` is made anew and gets stdout-N, stderr-N, journal-N.jsonl, and pass.out. When it
/// returns, no process of the run is left. `job` becomes $EXPLORE_JOB.
[[nodiscard]] Outcome run_test(const RunPlan& plan, const Trouble& trouble, const std::string& folder,
                               size_t job, const NetworkFds& network);

/// "journal", 0, ".jsonl" give FOLDER/journal-0.jsonl.
[[nodiscard]] std::string file_of(const std::string& folder, std::string_view what, size_t program,
                                  std::string_view end = "");

/// Returns a file's contents, at most 16 MiB from its beginning; "" if it cannot be read.
[[nodiscard]] std::string read_text(const std::string& path);

}  // namespace faultline::cli
