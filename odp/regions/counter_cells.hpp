// SPDX-License-Identifier: BSD-3-Clause
// The live counts behind a Counters snapshot. None of them is touched by an access that hits.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "odp/regions/counters.hpp"

namespace faultline::odp {

class Cell {
 public:
  void add(uint64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  void subtract(uint64_t amount) { value_.fetch_sub(amount, std::memory_order_relaxed); }
  void raise_to(uint64_t value) {
    uint64_t now = value_.load(std::memory_order_relaxed);
    while (now < value && !value_.compare_exchange_weak(now, value, std::memory_order_relaxed)) {
    }
  }
  [[nodiscard]] uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct CounterCells {
  Cell num_page_faults;
  Cell num_page_fault_pages;
  Cell num_invalidations;
  Cell num_invalidation_pages;
  Cell num_prefetches_handled;
  Cell num_prefetch_pages;
  Cell invalidations_faults_contentions;
  Cell num_failed_resolutions;
  Cell num_mrs_not_found;
  Cell num_odp_mr_pages;
  Cell num_odp_mrs;
  Cell faults_coalesced;
  Cell copy_faults_caught;
  Cell departures_seen;
  Cell pinned_bytes;
  Cell unpinned_bytes;
  Cell pin_evictions;
  Cell pin_fallbacks;
  Cell stuck_pin_bytes;
  Cell unwatched_regions;
  Cell fault_service_ns_total;
  Cell fault_service_ns_max;
  Cell faults_served_at_once;
  Cell num_implicit_children;
  Cell implicit_children_made;
  Cell implicit_children_reclaimed;
  Cell victims_paged_out;
  std::array<std::array<Cell, kLatencyBuckets>, kFaultKinds> fault_latency;

  void note_service(FaultKind kind, uint64_t service_ns) {
    fault_service_ns_total.add(service_ns);
    fault_service_ns_max.raise_to(service_ns);
    const auto bucket = static_cast<size_t>(std::bit_width(service_ns / 1000));
    fault_latency[static_cast<size_t>(kind)][std::min(bucket, kLatencyBuckets - 1)].add();
  }

  [[nodiscard]] Counters snapshot() const {
    return {.num_page_faults = num_page_faults.get(),
            .num_page_fault_pages = num_page_fault_pages.get(),
            .num_invalidations = num_invalidations.get(),
            .num_invalidation_pages = num_invalidation_pages.get(),
            .num_prefetches_handled = num_prefetches_handled.get(),
            .num_prefetch_pages = num_prefetch_pages.get(),
            .invalidations_faults_contentions = invalidations_faults_contentions.get(),
            .num_failed_resolutions = num_failed_resolutions.get(),
            .num_mrs_not_found = num_mrs_not_found.get(),
            .num_odp_mr_pages = num_odp_mr_pages.get(),
            .num_odp_mrs = num_odp_mrs.get(),
            .faults_coalesced = faults_coalesced.get(),
            .copy_faults_caught = copy_faults_caught.get(),
            .departures_seen = departures_seen.get(),
            .pinned_bytes = pinned_bytes.get(),
            .unpinned_bytes = unpinned_bytes.get(),
            .pin_evictions = pin_evictions.get(),
            .pin_fallbacks = pin_fallbacks.get(),
            .stuck_pin_bytes = stuck_pin_bytes.get(),
            .unwatched_regions = unwatched_regions.get(),
            .fault_service_ns_total = fault_service_ns_total.get(),
            .fault_service_ns_max = fault_service_ns_max.get(),
            .faults_served_at_once = faults_served_at_once.get(),
            .num_implicit_children = num_implicit_children.get(),
            .implicit_children_made = implicit_children_made.get(),
            .implicit_children_reclaimed = implicit_children_reclaimed.get(),
            .victims_paged_out = victims_paged_out.get(),
            .fault_latency = histogram()};
  }

 private:
  [[nodiscard]] FaultHistogram histogram() const {
    FaultHistogram histogram;
    for (size_t kind = 0; kind < kFaultKinds; ++kind)
      for (size_t bucket = 0; bucket < kLatencyBuckets; ++bucket)
        histogram[kind][bucket] = fault_latency[kind][bucket].get();
    return histogram;
  }
};

}  // namespace faultline::odp
