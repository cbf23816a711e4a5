// SPDX-License-Identifier: BSD-3-Clause
// ODP counters under the names that mlx5 gives them (rdma-statistic(8); Linux drivers/infiniband/hw/mlx5),
// and our own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "odp/regions/fault_kind.hpp"

namespace faultline::odp {

/// Services by kind and by how long they took, request queued to resolution posted: bucket b counts those
/// below 2^b us, the last one all others.
inline constexpr size_t kLatencyBuckets = 16;
using FaultHistogram = std::array<std::array<uint64_t, kLatencyBuckets>, kFaultKinds>;

/// A snapshot of monotonic counts, except the two gauges that say so.
struct Counters {
  uint64_t num_page_faults = 0;         ///< fault requests served (after coalescing)
  uint64_t num_page_fault_pages = 0;    ///< pages that they made resident
  uint64_t num_invalidations = 0;       ///< invalidation events that touched a region
  uint64_t num_invalidation_pages = 0;  ///< pages dropped from page maps by them
  uint64_t num_prefetches_handled = 0;
  uint64_t num_prefetch_pages = 0;
  uint64_t invalidations_faults_contentions = 0;  ///< services retried because an invalidation came between
  uint64_t num_failed_resolutions = 0;
  uint64_t num_mrs_not_found = 0;  ///< requests whose region was gone or whose key was stale
  uint64_t num_odp_mr_pages = 0;   ///< gauge: pages now mapped in ODP regions
  uint64_t num_odp_mrs = 0;        ///< gauge: live ODP regions

  uint64_t faults_coalesced = 0;    ///< requests that joined one already queued or in service
  uint64_t copy_faults_caught = 0;  ///< SIGSEGV/SIGBUS turned into a miss by the tolerant copy
  uint64_t departures_seen = 0;     ///< accesses to pages of files that the kernel had taken away meanwhile
  uint64_t pinned_bytes = 0;        ///< gauge
  uint64_t unpinned_bytes = 0;      ///< gauge: resident, cannot be pinned or not yet
  uint64_t pin_evictions = 0;
  uint64_t pin_fallbacks = 0;  ///< ranges left resident but unpinned (budget, RLIMIT_MEMLOCK, kind of memory)
  uint64_t stuck_pin_bytes = 0;  ///< of pinned_bytes: the kernel refuses to release them (a late sandbox)
  /// Regions, and pieces of implicit ones, of which userfaultfd did not take all: the library's hooks and the
  /// fault-tolerant copy alone guard the rest.
  uint64_t unwatched_regions = 0;
  uint64_t fault_service_ns_total = 0;  ///< request queued -> resolution posted, summed over num_page_faults
  uint64_t fault_service_ns_max = 0;

  uint64_t faults_served_at_once = 0;  ///< of num_page_faults: by the engine itself
  uint64_t num_implicit_children = 0;  ///< gauge
  uint64_t implicit_children_made = 0;
  uint64_t implicit_children_reclaimed = 0;
  uint64_t victims_paged_out = 0;  ///< pages that lost their pin while memory was short
  FaultHistogram fault_latency{};
};

/// Of one region, under rdma-core's names (rdma-statistic(8), "mr"), counted in pages, and our own.
struct RegionCounters {
  uint64_t page_faults = 0;         ///< pages made resident because an access missed them
  uint64_t page_invalidations = 0;  ///< pages that the program took away
  uint64_t page_prefetch = 0;       ///< pages made resident on advice
  uint64_t resident_pages = 0;      ///< gauge
};

}  // namespace faultline::odp
