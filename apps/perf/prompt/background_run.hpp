// SPDX-License-Identifier: BSD-3-Clause
// A run on a thread of its own, beside the prompt. All calls are the prompt's thread's.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "apps/perf/traffic/session.hpp"

namespace faultline::perf {

/// Length of a run that the prompt starts. With both 0, it lasts until it is stopped.
struct RunLength {
  double seconds = 0;
  uint64_t iterations = 0;
};

/// What ended a wait.
enum class Woken : uint8_t { time, run_ended, enter };

class BackgroundRun {
 public:
  explicit BackgroundRun(ClientSession& session);
  ~BackgroundRun();
  BackgroundRun(const BackgroundRun&) = delete;
  BackgroundRun& operator=(const BackgroundRun&) = delete;

  /// Connects new QPs and starts the traffic. exists() is false before. Throws what ClientRun's constructor
  /// throws.
  void start(const Plan& plan, const RunLength& length);
  /// Stops the traffic and ends the run at the server. exists() is false afterwards. Throws what the run
  /// threw.
  [[nodiscard]] Result finish();

  /// A run was started and not finished: its QPs and its regions exist.
  [[nodiscard]] bool exists() const { return run_ != nullptr; }
  /// The traffic has ended by itself.
  [[nodiscard]] bool ended() const { return ended_.load(std::memory_order_acquire); }
  [[nodiscard]] const ClientRun& run() const { return *run_; }
  [[nodiscard]] uint64_t messages() const { return messages_.load(std::memory_order_relaxed); }
  /// CLOCK_MONOTONIC, in seconds.
  [[nodiscard]] double began_s() const { return began_s_; }
  /// Waits for the end of the run, for Enter if `enter`, or for so many seconds; for ever if they are
  /// negative.
  [[nodiscard]] Woken wait(double seconds, bool enter) const;

 private:
  void work(const RunLength& length);
  void end_thread();

  ClientSession& session_;
  const int end_event_;  // eventfd(2)
  std::unique_ptr<ClientRun> run_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> ended_{false};
  std::atomic<uint64_t> messages_{0};
  double began_s_ = 0;
  Result result_;
  std::exception_ptr failure_;
};

}  // namespace faultline::perf
