// SPDX-License-Identifier: BSD-3-Clause
// ODP counters: mlx5's names (rdma-statistic(8); Linux drivers/infiniband/hw/mlx5), and further ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "odp/regions/fault_kind.hpp"
#include "stack/base/counter_row.hpp"

namespace faultline::odp {

/// Buckets of a histogram of services by kind and duration, from the queued request to the posted
/// resolution. Bucket b counts durations below 2^b us; the last bucket counts all others.
inline constexpr size_t kLatencyBuckets = 16;
template <typename Number>
using BasicFaultHistogram = std::array<std::array<Number, kLatencyBuckets>, kFaultKinds>;
using FaultHistogram = BasicFaultHistogram<uint64_t>;

/// `Number` is uint64_t in a snapshot and Cell in the live counters. kCounterRows describes each member.
template <typename Number>
struct BasicCounters {
  Number num_page_faults{};
  Number num_page_fault_pages{};
  Number num_invalidations{};
  Number num_invalidation_pages{};
  Number num_prefetches_handled{};
  Number num_prefetch_pages{};
  Number invalidations_faults_contentions{};
  Number num_failed_resolutions{};
  Number num_mrs_not_found{};
  Number num_odp_mr_pages{};
  Number num_odp_mrs{};
  Number faults_coalesced{};
  Number copy_faults_caught{};
  Number departures_seen{};
  Number pinned_bytes{};
  Number pin_evictions{};
  Number pin_fallbacks{};
  Number stuck_pin_bytes{};
  Number unwatched_regions{};
  Number fault_service_ns_total{};
  Number fault_service_ns_max{};
  Number unpinned_bytes{};
  Number faults_served_at_once{};
  Number num_implicit_children{};
  Number implicit_children_made{};
  Number implicit_children_reclaimed{};
  Number victims_paged_out{};
  BasicFaultHistogram<Number> fault_latency{};
};
using Counters = BasicCounters<uint64_t>;

template <typename Number>
inline constexpr CounterRow<BasicCounters<Number>, Number> kCounterRows[] = {
    {"num_page_faults", "requests", CounterKind::count, "fault requests served, after coalescing",
     &BasicCounters<Number>::num_page_faults},
    {"num_page_fault_pages", "pages", CounterKind::count, "pages that fault requests made resident",
     &BasicCounters<Number>::num_page_fault_pages},
    {"num_invalidations", "events", CounterKind::count, "invalidation events that touched a region",
     &BasicCounters<Number>::num_invalidations},
    {"num_invalidation_pages", "pages", CounterKind::count, "pages that invalidations dropped from page maps",
     &BasicCounters<Number>::num_invalidation_pages},
    {"num_prefetches_handled", "requests", CounterKind::count, "calls of ibv_advise_mr served",
     &BasicCounters<Number>::num_prefetches_handled},
    {"num_prefetch_pages", "pages", CounterKind::count, "pages that ibv_advise_mr made resident",
     &BasicCounters<Number>::num_prefetch_pages},
    {"invalidations_faults_contentions", "services", CounterKind::count,
     "services repeated because an invalidation came between",
     &BasicCounters<Number>::invalidations_faults_contentions},
    {"num_failed_resolutions", "requests", CounterKind::count, "fault requests that found no page to map",
     &BasicCounters<Number>::num_failed_resolutions},
    {"num_mrs_not_found", "requests", CounterKind::count, "fault requests with a stale key",
     &BasicCounters<Number>::num_mrs_not_found},
    {"num_odp_mr_pages", "pages", CounterKind::gauge, "pages now mapped in on-demand regions",
     &BasicCounters<Number>::num_odp_mr_pages},
    {"num_odp_mrs", "regions", CounterKind::gauge, "on-demand regions", &BasicCounters<Number>::num_odp_mrs},
    {"faults_coalesced", "requests", CounterKind::count,
     "fault requests that joined one in the queue or in service", &BasicCounters<Number>::faults_coalesced},
    {"copy_faults_caught", "faults", CounterKind::count,
     "SIGSEGV and SIGBUS that a copy turned into a page miss", &BasicCounters<Number>::copy_faults_caught},
    {"departures_seen", "accesses", CounterKind::count,
     "accesses to file pages that the kernel had taken away meanwhile",
     &BasicCounters<Number>::departures_seen},
    {"pinned_bytes", "bytes", CounterKind::gauge, "pinned memory", &BasicCounters<Number>::pinned_bytes},
    {"pin_evictions", "pins", CounterKind::count, "pins released to stay within the pin budget",
     &BasicCounters<Number>::pin_evictions},
    {"pin_fallbacks", "ranges", CounterKind::count,
     "ranges left resident but unpinned: pin budget, RLIMIT_MEMLOCK or kind of memory",
     &BasicCounters<Number>::pin_fallbacks},
    {"stuck_pin_bytes", "bytes", CounterKind::gauge,
     "part of pinned_bytes that the kernel refuses to release (a late sandbox)",
     &BasicCounters<Number>::stuck_pin_bytes},
    {"unwatched_regions", "regions", CounterKind::count,
     "regions, and parts of implicit ones, of which userfaultfd did not take all: hooks and tolerant copies "
     "alone guard the rest",
     &BasicCounters<Number>::unwatched_regions},
    {"fault_service_ns_total", "ns", CounterKind::count,
     "time from request to resolution, summed over num_page_faults",
     &BasicCounters<Number>::fault_service_ns_total},
    {"fault_service_ns_max", "ns", CounterKind::maximum, "longest time from request to resolution",
     &BasicCounters<Number>::fault_service_ns_max},
    {"unpinned_bytes", "bytes", CounterKind::gauge,
     "resident memory that cannot be pinned, or is not pinned yet", &BasicCounters<Number>::unpinned_bytes},
    {"faults_served_at_once", "requests", CounterKind::count,
     "part of num_page_faults that the engine served itself", &BasicCounters<Number>::faults_served_at_once},
    {"num_implicit_children", "regions", CounterKind::gauge, "2 MiB children of implicit regions",
     &BasicCounters<Number>::num_implicit_children},
    {"implicit_children_made", "regions", CounterKind::count, "children of implicit regions made",
     &BasicCounters<Number>::implicit_children_made},
    {"implicit_children_reclaimed", "regions", CounterKind::count, "children of implicit regions taken back",
     &BasicCounters<Number>::implicit_children_reclaimed},
    {"victims_paged_out", "pages", CounterKind::count, "pages that lost their pin while memory was short",
     &BasicCounters<Number>::victims_paged_out},
};
static_assert(sizeof(Counters) ==
                  sizeof(FaultHistogram) + std::size(kCounterRows<uint64_t>) * sizeof(uint64_t),
              "each member has a row");

/// Counters of one region, in pages. The first three have rdma-core's names (rdma-statistic(8), "mr").
struct RegionCounters {
  uint64_t page_faults = 0;
  uint64_t page_invalidations = 0;
  uint64_t page_prefetch = 0;
  uint64_t resident_pages = 0;
};

inline constexpr CounterRow<RegionCounters> kRegionCounterRows[] = {
    {"page_faults", "pages", CounterKind::count, "pages made resident because an access missed them",
     &RegionCounters::page_faults},
    {"page_invalidations", "pages", CounterKind::count, "pages that the program took away",
     &RegionCounters::page_invalidations},
    {"page_prefetch", "pages", CounterKind::count, "pages made resident on advice",
     &RegionCounters::page_prefetch},
    {"resident_pages", "pages", CounterKind::gauge, "pages now resident", &RegionCounters::resident_pages},
};

}  // namespace faultline::odp
