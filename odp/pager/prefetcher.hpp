// SPDX-License-Identifier: BSD-3-Clause
// Advice about ranges (ibv_advise_mr). Large ranges are made resident in parallel, outside the pager. The
// pager then finds them resident, pins and publishes them; meanwhile it serves the engines' faults.
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

/// A range of this process's memory.
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

  /// Waits until the range is resident; returns false if it cannot be made resident.
  [[nodiscard]] bool run(const FaultRequest& request, const PopulateRange& memory);
  /// Starts a prefetch without waiting. Advice may be dropped if too much is queued.
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
