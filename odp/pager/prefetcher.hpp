// SPDX-License-Identifier: BSD-3-Clause
// Advice about ranges (ibv_advise_mr). What is large is made resident in parallel and away from the pager,
// which then only finds it there, pins and publishes it: engines' faults go on meanwhile.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

#include "odp/pager/pager.hpp"
#include "odp/regions/memory_access.hpp"

namespace faultline::odp {

/// Memory of this process.
struct PopulateRange {
  uint64_t address = 0;
  uint64_t length_bytes = 0;
};

class Prefetcher {
 public:
  explicit Prefetcher(Pager& pager) : pager_(pager) {}
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  ~Prefetcher();

  /// Waits until it is done; false where it cannot be had.
  [[nodiscard]] bool run(const FaultRequest& request, const PopulateRange& memory);
  /// Begins it. Advice may be dropped where too much is waiting.
  void start(const FaultRequest& request, const PopulateRange& memory);

 private:
  struct Job {
    FaultRequest request;
    PopulateRange memory;
  };
  static constexpr size_t kMaxJobs = 1024;

  void work();
  void populate(const FaultRequest& request, const PopulateRange& memory) const;

  Pager& pager_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;  ///< started by the first large advice
};

}  // namespace faultline::odp
