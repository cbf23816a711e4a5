// SPDX-License-Identifier: BSD-3-Clause
// The live counters of a domain. An access that hits does not touch them. Any thread writes; any thread
// takes a snapshot.
#pragma once

#include <algorithm>
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

struct CounterCells : BasicCounters<Cell> {
  void note_service(FaultKind kind, uint64_t service_ns) {
    fault_service_ns_total.add(service_ns);
    fault_service_ns_max.raise_to(service_ns);
    const auto bucket = static_cast<size_t>(std::bit_width(service_ns / 1000));
    fault_latency[static_cast<size_t>(kind)][std::min(bucket, kLatencyBuckets - 1)].add();
  }

  [[nodiscard]] Counters snapshot() const {
    Counters counters;
    for (size_t i = 0; i < std::size(kCounterRows<Cell>); ++i)
      counters.*kCounterRows<uint64_t>[i].member = (this->*kCounterRows<Cell>[i].member).get();
    for (size_t kind = 0; kind < kFaultKinds; ++kind)
      for (size_t bucket = 0; bucket < kLatencyBuckets; ++bucket)
        counters.fault_latency[kind][bucket] = fault_latency[kind][bucket].get();
    return counters;
  }
};

}  // namespace faultline::odp
